"""Real vLLM is the same on caches in every state and after every suspension, and stops as known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from e2e import gates, own_lane

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real, pytest.mark.slow]

ASKED = ("-m", "lifecycle", "--lifecycle")
STOP = ("-k", "second or open_streams or grace_period or takes_no_more")
CACHES = ("-k", "killed or garbled or only_read")
HELD = ("-k", "sleep_and_pause or under_way or told_apart or leave_free or engine_is_dead")


def judged(run: gates.GatesRun) -> dict[str, dict[str, Any]]:
    (family,) = run.verdict["families"]
    (gate,) = family["gates"]
    return {test["test"].partition("[")[0]: test for test in gate["tests"]}


def test_with_a_time_to_drain_streams_finish(tmp_path: Path) -> None:
    own_lane.write(tmp_path, "drains", serve={"shutdown_timeout": 25})
    tests = judged(gates.run(tmp_path, "--lane", "drains", *ASKED, *STOP))
    outcomes = {name: test["outcome"] for name, test in tests.items()}
    assert outcomes.pop("test_says_that_it_takes_no_more") == "KNOWN", tests
    assert set(outcomes.values()) == {"PASS"}, tests
    stopped = tests["test_open_streams_end_when_it_is_told_to_stop"]["evidence"]["stopped"]
    assert {stream["end"] for stream in stopped["streams"]} == {"whole"}


def test_without_one_the_streams_hang(tmp_path: Path) -> None:
    tests = judged(gates.run(tmp_path, *ASKED, *STOP))
    known = {name for name, test in tests.items() if test["outcome"] == "KNOWN"}
    assert known == {
        "test_open_streams_end_when_it_is_told_to_stop",
        "test_is_gone_within_the_grace_period",
    }, tests


def test_caches_that_were_compiled_to_are_used_in_every_state(tmp_path: Path) -> None:
    own_lane.write(tmp_path, "compiles", serve={"enforce_eager": None})
    tests = judged(gates.run(tmp_path, "--lane", "compiles", *ASKED, *CACHES))
    assert {test["outcome"] for test in tests.values()} <= {"PASS", "KNOWN"}, tests
    assert tests["test_boots_on_what_a_killed_boot_left"]["evidence"]["killed"]["compiling"]


def test_a_suspended_server_resumes_as_before(tmp_path: Path) -> None:
    tests = judged(gates.run(tmp_path, *ASKED, *HELD))
    assert {test["outcome"] for test in tests.values()} == {"PASS"}, tests
    held = tests["test_answers_after_sleep_and_pause_as_before"]["evidence"]
    assert held["refused"] == {}
    assert "sleep mode is not supported on CPU" in held["ignored"]
