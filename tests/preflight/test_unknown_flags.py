"""Flags that a release of vLLM does not take are named before a boot, with their other name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from situations import CPU, situation

from pytest_vllm_gates.catalog import family as families, lane as lanes, releases
from pytest_vllm_gates.checkpoints.resolve import on_lane
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.machine import inspect as machine_inspect
from pytest_vllm_gates.preflight import checks, gather
from pytest_vllm_gates.preflight.types import Check, CheckState


def checked(version: str, serve: dict[str, Any], **changes: Any) -> Check:
    bundle = replace(CPU, versions={**CPU.versions, "vllm": version}, **changes)
    given = situation(bundle=bundle, serve=serve, known_flags=releases.flags(version))
    (check,) = checks.run(given, ["flags"])
    return check


def test_unknown_flag_is_named_with_its_releases() -> None:
    check = checked("0.29.0", {"enable_scale_out": True})
    assert check.state is CheckState.FAILS
    assert check.what == "vLLM 0.29.0 has no flag enable_scale_out (vLLM has it since 0.30.0)"
    assert "unrecognized arguments" in check.cause
    assert check.fix == "remove enable_scale_out from [serve] of the lane or the family"


def test_unknown_flag_is_named_with_its_name_then() -> None:
    check = checked("0.30.0", {"device_memory_utilization": 0.9})
    assert "0.30.0 calls it gpu_memory_utilization" in check.what
    assert check.fix == ("replace device_memory_utilization by gpu_memory_utilization in [serve]")


def test_misspelled_flag_gets_a_guess() -> None:
    check = checked("0.32.0", {"max_modle_len": 2048})
    assert check.fix == "did you mean 'max_model_len' instead of 'max_modle_len'?"


def test_a_flag_that_is_like_none_gets_no_guess() -> None:
    assert checked("0.32.0", {"swap_spaces": 4}).fix.startswith("remove swap_spaces from")


@pytest.mark.parametrize(
    ("version", "changes"),
    [("0.32.0", {}), ("0.99.0", {}), ("0.29.0", {"plugins": ("vllm_mine",)})],
    ids=["known", "a release that was not read", "a plugin brings flags"],
)
def test_flags_that_may_be_known_pass(version: str, changes: dict[str, Any]) -> None:
    check = checked(version, {"enable_scale_out": True, "enforce_eager": True}, **changes)
    assert check.state is CheckState.OK


@pytest.mark.parametrize("lane", ["cpu", "cpu-previous"])
@pytest.mark.parametrize("family", sorted(families.files(Path("/nowhere"))))
def test_flags_of_every_shipped_family_are_known(lane: str, family: str) -> None:
    loaded, chosen = lanes.load(lane, Path("/nowhere")), families.load(family, Path("/nowhere"))
    given = gather.gather(
        chosen,
        on_lane(chosen, loaded, None),
        loaded,
        environment.at_hand(loaded, cache=Path("/nowhere")),
        machine_inspect.inspect(),
    )
    assert given.known_flags
    assert releases.unknown(given.known_flags, given.serve) == []
