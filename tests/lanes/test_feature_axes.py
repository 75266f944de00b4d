"""A feature that only one of two lanes turns on is an axis by its name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lanes import described
from pytest_vllm_gates.catalog import lane as lane_catalog
from pytest_vllm_gates.features import catalog
from pytest_vllm_gates.lanes.diff import AXES, differences
from pytest_vllm_gates.report import environment as report

if TYPE_CHECKING:
    from pytest_vllm_gates.lanes.describe import BundleDescription, BundleDiff

NGRAM = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}


def lane(serve: dict[str, Any], **env: str) -> BundleDescription:
    """Return the shipped lane `cpu` with these settings."""
    shipped = lane_catalog.load("cpu", described.NOWHERE)
    changed = {"serve": {**shipped.serve, **serve}, "env": {**shipped.env, **env}}
    return described.describe(shipped.model_copy(update=changed), "gemma/3", "glm")


def rows(diff: BundleDiff) -> list[tuple[str, str, str | None, str | None]]:
    return [(one.axis, one.name, one.ours, one.theirs) for one in diff.changed]


def test_a_feature_is_the_axis_and_its_flags_go_along() -> None:
    diff = differences(lane(NGRAM), lane({}))
    assert diff.axes == ("feature ngram",)
    assert rows(diff)[0][1:] == ("speculation", "ngram", None)
    assert [row[1] for row in rows(diff)][1:] == ["speculative_config"]
    assert diff.warning is None
    assert "flags" in diff.same
    assert "features" not in diff.same
    first, *_ = [line for line in report.diff_lines(diff) if line.startswith("feature ngram")]
    assert first.split() == ["feature", "ngram", "speculation", "ngram", "-"]
    assert report.diff_document(diff)["axes"] == ["feature ngram"]


def test_features_of_one_kind_are_one_axis() -> None:
    guidance, outlines = (
        {"structured_outputs_config": {"backend": name}} for name in ("guidance", "outlines")
    )
    diff = differences(lane(guidance), lane(outlines))
    assert diff.axes == ("feature guidance or outlines",)


def test_each_kind_of_features_is_an_axis_beside_the_others() -> None:
    diff = differences(lane({**NGRAM, "stream_interval": 4, "max_num_seqs": 4}), lane({}))
    assert diff.axes == ("feature ngram", "feature stream-interval", "flags")
    assert diff.warning is not None
    assert diff.warning.startswith("3 axes changed at once (feature ngram, feature stream-interval")


def test_a_variable_of_a_feature_goes_along() -> None:
    diff = differences(lane({}, VLLM_BATCH_INVARIANT="1"), lane({}))
    assert diff.axes == ("feature batch-invariant",)


def test_another_setting_of_a_feature_that_both_have_is_a_flag() -> None:
    more = {"speculative_config": {**NGRAM["speculative_config"], "num_speculative_tokens": 5}}
    assert differences(lane(NGRAM), lane(more)).axes == ("flags",)


def test_lanes_with_the_same_features_do_not_differ() -> None:
    diff = differences(lane(NGRAM), lane(NGRAM))
    assert (diff.changed, "features" in diff.same) == ((), True)


@pytest.mark.parametrize("feature", catalog.load(), ids=lambda feature: feature.name)
def test_every_feature_that_ships_is_a_separate_axis(feature: catalog.Feature) -> None:
    diff = differences(lane(feature.serve, **feature.env), lane({}))
    (axis,) = diff.axes
    assert axis.startswith("feature ")
    assert feature.name in axis.removeprefix("feature ").split(" or ")


def test_a_running_servers_features_are_known_only_where_they_are_declared() -> None:
    ours, server = lane(NGRAM), replace(lane({}), partial=True)
    diff = differences(ours, server)
    assert "features (ngram)" in diff.unknown
    assert not any(axis.startswith("feature ") for axis in diff.axes)
    declared = replace(lane(NGRAM), partial=True)
    assert "features" in differences(ours, declared).same
    assert "features" in differences(ours, replace(server, features=None)).unknown
    assert "features" in AXES
