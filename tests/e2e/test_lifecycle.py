"""Real vLLM that is told to stop lets its streams finish where it has a time to drain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from e2e import gates, own_lane

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real, pytest.mark.slow]

ASKED = ("-m", "lifecycle", "--lifecycle")


def judged(run: gates.GatesRun) -> dict[str, dict[str, Any]]:
    (family,) = run.verdict["families"]
    (gate,) = family["gates"]
    return {test["test"].partition("[")[0]: test for test in gate["tests"]}


def test_with_a_time_to_drain_streams_finish(tmp_path: Path) -> None:
    own_lane.write(tmp_path, "drains", serve={"shutdown_timeout": 25})
    tests = judged(gates.run(tmp_path, "--lane", "drains", *ASKED))
    outcomes = {name: test["outcome"] for name, test in tests.items()}
    assert outcomes.pop("test_says_that_it_takes_no_more") == "KNOWN", tests
    assert set(outcomes.values()) == {"PASS"}, tests
    stopped = tests["test_open_streams_end_when_it_is_told_to_stop"]["evidence"]["stopped"]
    assert {stream["end"] for stream in stopped["streams"]} == {"whole"}


def test_without_one_the_streams_hang(tmp_path: Path) -> None:
    tests = judged(gates.run(tmp_path, *ASKED))
    known = {name for name, test in tests.items() if test["outcome"] == "KNOWN"}
    assert known == {
        "test_open_streams_end_when_it_is_told_to_stop",
        "test_is_gone_within_the_grace_period",
    }, tests
