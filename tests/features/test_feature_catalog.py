"""Combinations of features are few, whole, and made of features that go together."""

from __future__ import annotations

from itertools import combinations

import pytest

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.features import catalog
from pytest_vllm_gates.features.catalog import Feature, chosen, every_pair


def feature(name: str, kind: str = "") -> Feature:
    return Feature(
        name=name, title=name, kind=kind or name, serve={name: True}, env={name.upper(): "1"},
        reference="r",
    )  # fmt: skip


A1, A2, B, C, D = (
    feature("a-one", "a"), feature("a-two", "a"), feature("b"), feature("c"), feature("d"),
)  # fmt: skip
ALL = (A1, A2, B, C, D)


def test_every_two_features_that_go_together_meet_in_a_boot() -> None:
    rows = every_pair(ALL)
    for one, other in combinations(ALL, 2):
        meet = any(one in row.features and other in row.features for row in rows)
        assert meet == (one.kind != other.kind), (one.name, other.name)
    assert [row.name for row in rows] == ["a-one+b+c+d", "a-two+b+c+d"]


def test_the_shipped_features_take_few_boots() -> None:
    features = catalog.load()
    assert len({one.name for one in features}) == len(features)
    assert len(chosen("pairs", features, gpus=True)) <= catalog.MOST_BOOTS
    assert all(one.serve or one.env for one in features)


def test_a_combination_has_the_adapters_of_its_features() -> None:
    names = {combination.name: combination.adapters for combination in catalog.chosen(
        "lora,lora-two+ngram,ngram", catalog.load(), gpus=False
    )}  # fmt: skip
    assert names == {"lora": 1, "lora-two+ngram": 2, "ngram": 0}


def test_adapters_meet_every_other_feature() -> None:
    pairs = chosen("pairs", catalog.load(), gpus=False)
    rows = [{one.name for one in row.features} for row in pairs]
    for name in ("ngram", "prefix-caching", "small-steps", "guidance", "stream-interval"):
        for adapters in ("lora", "lora-two"):
            assert any({name, adapters} <= row for row in rows), (name, adapters)


def test_too_many_boots_are_refused() -> None:
    features = [feature(f"{kind}{number}", kind) for kind in "ab" for number in range(4)]
    with pytest.raises(UserError, match="takes 16 boots, and 12 are the most: name fewer"):
        every_pair(features)


def test_named_features_are_combined() -> None:
    alone, both = chosen("b, c+d", ALL, gpus=False)
    assert (alone.name, both.name) == ("b", "c+d")
    assert both.serve == {"c": True, "d": True}
    assert both.env == {"C": "1", "D": "1"}
    assert chosen("pairs", ALL, gpus=False) == every_pair(ALL)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "a-onn",
            "unknown feature 'a-onn'; did you mean 'a-one'?\nknown: pairs, deployed, a-one",
        ),
        ("a-one+a-two", "a-one and a-two exclude one another: both are a"),
        (" , ", "no feature is named: known: pairs"),
        ("b+b", "b and b exclude one another"),
    ],
)
def test_features_that_exclude_one_another_are_refused(text: str, says: str) -> None:
    with pytest.raises(UserError) as error:
        chosen(text, ALL, gpus=False)
    assert str(error.value).startswith(says)


def test_pairs_leave_out_features_for_gpus_without_a_gpu() -> None:
    on_gpus = D.model_copy(update={"needs_gpu": True})
    names = [row.name for row in chosen("pairs", (B, C, on_gpus), gpus=False)]
    assert names == ["b+c"]
    assert [row.name for row in chosen("pairs", (B, C, on_gpus), gpus=True)] == ["b+c+d"]
    assert [row.name for row in chosen("d", (on_gpus,), gpus=False)] == ["d"]


def test_pairs_boot_a_feature_that_is_known_to_die_by_itself() -> None:
    names = [row.name for row in chosen("pairs", (B, C, D), gpus=False, apart={"c", "unknown"})]
    assert names == ["c", "b+d"]


def test_the_lanes_own_features_are_found_and_left_out() -> None:
    caching = B.model_copy(update={"serve": {"caching": True}, "without": {"caching": False}})
    steps = C.model_copy(update={"recognise": {"steps": ()}})
    drafts = D.model_copy(update={"recognise": {"drafts.method": ("ngram",)}})
    lane = {"caching": True, "steps": 64, "drafts": {"method": "ngram", "n": 9}, "eager": True}
    env = {"B": "1", "X": "y"}
    (deployed,) = chosen("deployed", (caching, steps, drafts), gpus=False, serve=lane, env=env)
    assert [one.name for one in deployed.features] == ["b", "c", "d"]
    assert deployed.name == "deployed"
    assert deployed.summary == "deployed: b+c+d"
    assert deployed.booted(lane, env) == ({"eager": True, "caching": False}, {"X": "y"})


@pytest.mark.parametrize(
    ("lane", "env"),
    [({}, {}), ({"b": False}, {"B": "1"}), ({"b": True}, {}), ({"b": True}, {"B": "0"})],
)
def test_a_lane_without_a_feature_has_none(lane: dict[str, object], env: dict[str, str]) -> None:
    (deployed,) = chosen("deployed", (B,), gpus=False, serve=lane, env=env)
    assert deployed.features == ()
    assert deployed.summary == "deployed: none of the known features"


def test_another_method_of_a_table_is_another_feature() -> None:
    drafts = D.model_copy(update={"recognise": {"drafts.method": ("ngram",)}})
    for table in ({"method": "mtp"}, {}, "ngram"):
        assert not drafts.is_on({"drafts": table}, {})


@pytest.mark.parametrize(
    "serve",
    [
        pytest.param({"num_gpu_blocks_override": 4096}, id="a cache that is not small"),
        pytest.param(
            {"kv_transfer_config": {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}},
            id="a connector beside the server's own prefix cache",
        ),
    ],
)
def test_a_lane_whose_counters_may_rest_has_no_feature_that_counts(
    serve: dict[str, object],
) -> None:
    assert catalog.turned_on(catalog.load(), serve, {}) == ()


def test_shipped_features_are_found_in_a_lane_that_has_them() -> None:
    for feature in catalog.load():
        assert feature.is_on(feature.serve, feature.env), feature.name
        assert not feature.is_on({}, {}), feature.name


def test_features_are_added_to_a_lanes_own_flags() -> None:
    (combination,) = chosen("b", ALL, gpus=False)
    assert combination.booted({"x": 1, "b": False}, {"Y": "2"}) == (
        {"x": 1, "b": True}, {"Y": "2", "B": "1"}
    )  # fmt: skip


PLACES = {
    catalog.FOLDER: "/boot/1-stored",
    catalog.CHECKPOINT: "/models/tiny",
    catalog.DRAFT_HEAD: "/heads/tiny",
    catalog.BLOCKS: "39",
}


def test_a_boot_has_places_of_its_own() -> None:
    flags = {"config": {"paths": ["{folder}/a", 3], "path": "{checkpoint}"}, "eager": True}
    assert catalog.with_places(flags, PLACES) == {
        "config": {"paths": ["/boot/1-stored/a", 3], "path": "/models/tiny"}, "eager": True
    }  # fmt: skip


@pytest.mark.parametrize(("name", "boots"), [("kv-handover", 2), ("kv-connector", 1)])
def test_a_server_before_it_is_a_boot_more(name: str, boots: int) -> None:
    (combination,) = catalog.chosen(name, catalog.load(), gpus=False)
    assert combination.boots == boots


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("kv-connector", catalog.FOLDER),
        ("draft-model", catalog.CHECKPOINT),
        ("eagle", catalog.DRAFT_HEAD),
        ("small-cache", catalog.BLOCKS),
        ("kv-handover", catalog.FOLDER),
        ("kv-load-fails", catalog.FOLDER),
    ],
)
def test_places_of_a_feature_are_filled(name: str, place: str) -> None:
    (combination,) = catalog.chosen(name, catalog.load(), gpus=False)
    assert place in str(combination.serve)
    assert place not in str(catalog.with_places(combination.serve, PLACES))
