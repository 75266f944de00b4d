"""A real server that sleeps badly, loses requests or mixes caches up turns its check red."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from e2e import gates, own_lane

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.checkpoints.resolve import resolve

pytestmark = [pytest.mark.real, pytest.mark.slow]

HERE = Path(__file__).parent
LIFECYCLE = ("-m", "boot or lifecycle", "--lifecycle")
BOOT = "test_boot.py"
HELD = "sleep_and_pause or under_way or told_apart"
STREAMS = "second_time or open_streams"
ROLLING = "rolling or one_after_the_other"
CACHES = "killed or garbled or only_read"
SERVED = "rope_theta"
BOOTS_S = 900.0
"""The time limit of five boots, in turn or two at once, on a busy machine."""


@dataclass(frozen=True)
class Cycle:
    """How a server goes wrong, the check that detects it, and its message."""

    name: str
    check: str
    says: str
    asked: str = HELD
    """The tests to run."""


FAULTS = [
    Cycle("forgets", "answers_after_sleep_and_pause_as_before", "(after sleep, level 0)"),
    Cycle("lies", "alive_and_ready_are_told_apart", "it reports False while suspended"),
    Cycle("loses", "alive_and_ready_are_told_apart", "/health answers 503 while suspended"),
    Cycle("cuts", "open_streams_end_when_it_is_told_to_stop", "as if it were whole", STREAMS),
    Cycle("tires", "a_rolling_restart_loses_no_request", "no answer: answered 500", ROLLING),
]


def red(run: gates.GatesRun) -> dict[str, str]:
    """Return why the gate's tests failed, by their names without `test_`."""
    (family,) = run.verdict["families"]
    (gate,) = [gate for gate in family["gates"] if gate["gate"] == "lifecycle"]
    return {
        test["test"].partition("[")[0].removeprefix("test_"): test["reason"]
        for test in gate["tests"]
        if test["outcome"] == "FAIL"
    }


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_spoiled_server_is_red(fault: Cycle, tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(HERE), "CYCLE": fault.name}
    own_lane.write(tmp_path, "cycling", env=env, serve={"middleware": "cycling_app.Cycling"})
    run = gates.run(
        tmp_path, "--lane", "cycling", *LIFECYCLE, "-k", f"{BOOT} or {fault.asked}",
        limit_s=BOOTS_S,
    )  # fmt: skip
    assert [*red(run)] == [fault.check], run.output
    assert fault.says in red(run)[fault.check]


def test_a_warm_cache_of_another_model_is_red(tmp_path: Path) -> None:
    checkpoint = resolve(families.load(gates.MODEL, tmp_path), "miniature")
    other = shutil.copytree(checkpoint.source, tmp_path / "other")
    config = other / "config.json"
    text = config.read_text(encoding="utf-8")
    content = json.loads(text)
    assert slower_positions(content)
    config.write_text(json.dumps(content), encoding="utf-8")
    env = {"FAULT_INSTEAD_OF": checkpoint.source, "FAULT_CHECKPOINT": str(other)}
    start = {"server": [str(HERE / "forgetful_program.py")]}
    own_lane.write(tmp_path, "forgetful", env=env, start=start)
    run = gates.run(
        tmp_path, "--lane", "forgetful", *LIFECYCLE, "-k", f"{BOOT} or {CACHES}", limit_s=BOOTS_S
    )
    # On caches that may only be read, the engine dies at its first chat (a known defect).
    caches = {"boots_on_what_a_killed_boot_left", "boots_on_garbled_caches"}
    assert red(run).keys() == caches, run.output
    assert all("nats apart" in reason or "now" in reason for reason in red(run).values())


def slower_positions(table: dict[str, object]) -> bool:
    """Change the base of the positions, at any depth; return whether there was one."""
    found = False
    for key, value in table.items():
        if isinstance(value, dict):
            found = slower_positions(value) or found
        elif key == SERVED and isinstance(value, float):
            table[key] = value / 1000
            found = True
    return found
