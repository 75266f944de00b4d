"""A replay serves with the flags, variables and repairs of its incident, and names the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from incident_folders_made import incident

from pytest_vllm_gates.catalog import flags, lane as lanes
from pytest_vllm_gates.checkpoints import resolve as checkpoints_resolve
from pytest_vllm_gates.incidents import same_server
from pytest_vllm_gates.incidents.same_server import Setup
from pytest_vllm_gates.incidents.types import Incident, ServedLane

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family


@pytest.fixture
def here(qwen: Family) -> Setup:
    """The miniature on the shipped lane of this machine."""
    small = checkpoints_resolve.miniature(qwen)
    assert small
    return Setup(qwen, small, lanes.load("cpu", Path("/nowhere")))


def seen(here: Setup, *, env: dict[str, str] | None = None, **changes: Any) -> Incident:
    """Return an incident of that server with other flags; None leaves one out."""
    served = flags.serving(here.family, here.checkpoint, here.lane)
    recorded = {name: value for name, value in {**served, **changes}.items() if value is not None}
    lane = ServedLane(
        name="cpu", title="", form="lock", env=here.lane.env if env is None else env,
        serve=here.lane.serve, overlay=(),
    )  # fmt: skip
    return incident(lane=lane, flags=recorded)


def served(setup: Setup) -> dict[str, Any]:
    """Return the flags that a setup serves with."""
    return flags.serving(setup.family, setup.checkpoint, setup.lane)


def test_same_setup_stays_as_it_is(here: Setup) -> None:
    restored, notes = same_server.restored(seen(here), here)
    assert (restored, notes) == (here, [])
    assert [*same_server.differences(seen(here), here)] == []


def test_flags_of_checkpoint_family_and_lane_are_restored(here: Setup) -> None:
    then = seen(here, max_model_len=1234)
    changed = Setup(
        here.family.model_copy(update={"serve": {**here.family.serve, "seed": 3}}),
        replace(here.checkpoint, serve={"max_model_len": 32768}),
        here.lane.model_copy(update={"serve": {**here.lane.serve, "block_size": 16}}),
    )
    restored, notes = same_server.restored(then, changed)
    assert served(restored) == then.flags
    assert [*same_server.differences(then, restored)] == []
    (note,) = notes
    assert note.startswith("as it was then: ")
    assert "max_model_len=1234 (now: 32768)" in note
    assert "without seed (now: 3)" in note


def test_incident_without_flags_has_those_of_its_lane(here: Setup) -> None:
    then = incident(
        lane=ServedLane(
            name="cpu", title="", form="lock", env=here.lane.env, overlay=(),
            serve={"enforce_eager": False},
        )
    )  # fmt: skip
    restored, _ = same_server.restored(then, here)
    expected = flags.merged(here.family.serve, here.checkpoint.serve, {"enforce_eager": False})
    assert served(restored) == expected


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("chat_template", "/etc/passwd"),
        ("middleware", "evil.App"),
        ("max_model_len", "--middleware=evil.App"),
        ("speculative_config", {"model": "evil"}),
        ("ssl_keyfile", "[redacted]"),
    ],
)
def test_flags_that_could_run_code_are_named_and_not_taken(
    here: Setup, flag: str, value: Any
) -> None:
    then = seen(here, **{flag: value})
    restored, notes = same_server.restored(then, here)
    assert (restored, notes) == (here, [])
    (difference,) = same_server.differences(then, restored)
    assert flag in difference


def test_flag_of_the_project_alone_is_only_left_out_where_a_rule_knows_it(here: Setup) -> None:
    ours = {**here.lane.serve, "allowed_origins": ["x"], "swap_space": 2}
    changed = replace(here, lane=here.lane.model_copy(update={"serve": ours}))
    restored, _ = same_server.restored(seen(here), changed)
    assert served(restored)["allowed_origins"] == ["x"]
    assert "swap_space" not in served(restored)
    (difference,) = same_server.differences(seen(here), restored)
    assert difference == "allowed_origins=['x'] (then: not set)"


def test_variables_are_restored_within_the_same_rules(here: Setup) -> None:
    evil = {"LD_PRELOAD": "evil.so", "K": "[redacted]"}
    then = seen(here, env={**here.lane.env, "VLLM_CPU_KVCACHE_SPACE": "2", **evil})
    changed = replace(
        here, lane=here.lane.model_copy(update={"env": {**here.lane.env, "OMP_NUM_THREADS": "3"}})
    )
    restored, notes = same_server.restored(then, changed)
    assert restored.lane.env == {**here.lane.env, "VLLM_CPU_KVCACHE_SPACE": "2"}
    assert "VLLM_CPU_KVCACHE_SPACE=2 (now: 1)" in notes[0]
    assert sorted(same_server.differences(then, restored)) == [
        "K is not set (then: a value that was not recorded)",
        "LD_PRELOAD is not set (then: 'evil.so')",
    ]


def test_variables_of_the_shell_are_restored_too(
    here: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    then = seen(here).model_copy(update={"variables": same_server.variables(here.lane)})
    assert then.variables == {**here.lane.env, "VLLM_LOGGING_LEVEL": "DEBUG"}
    assert same_server.restored(then, here) == (here, [])

    monkeypatch.delenv("VLLM_LOGGING_LEVEL")
    monkeypatch.setenv("VLLM_ATTENTION_BACKEND", "FLASH")
    restored, notes = same_server.restored(then, here)
    assert restored.lane.env == then.variables
    assert notes == ["as it was then: VLLM_LOGGING_LEVEL=DEBUG (now: not set)"]
    assert [*same_server.differences(then, restored)] == [
        "VLLM_ATTENTION_BACKEND=FLASH (then: not set)"
    ]


def test_secret_is_not_shown_and_stays(here: Setup) -> None:
    secret = {**here.lane.env, "HF_TOKEN": "hf_verysecretvalue"}
    changed = replace(here, lane=here.lane.model_copy(update={"env": secret}))
    restored, notes = same_server.restored(seen(here), changed)
    assert (restored, notes) == (changed, [])
    assert [*same_server.differences(seen(here), changed)] == [
        "HF_TOKEN=[redacted] (then: not set)"
    ]
    then = seen(here, env={**here.lane.env, "HF_TOKEN": "[redacted]"})
    assert [*same_server.differences(then, changed)] == []


def test_repairs_are_those_of_the_incident() -> None:
    then = incident(
        lane=ServedLane(
            name="cpu", title="", form="lock", env={}, serve={}, overlay=("a: x", "gone: y")
        )
    )
    assert same_server.left_out(then, ["a", "b", "c"]) == ("b", "c")
    assert [*same_server.unrepaired(then, ["a", "b"])] == [
        "without the repair gone, which is not in the lane's overlay",
        "with the repair b (then: without it)",
    ]


def test_other_versions_are_named() -> None:
    then = incident(versions={"vllm": "0.31.0", "torch": "2.13.0", "x": "1"})
    now = {"vllm": "0.32.0", "torch": "2.13.0", "y": "2"}
    assert [*same_server.other_versions(then, now)] == ["vllm 0.32.0 (then: 0.31.0)"]
