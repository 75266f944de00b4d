"""Long waits are one line that rewrites itself on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.report import progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that is moved by hand."""
    now = [100.0]
    monkeypatch.setattr(progress, "time", type("Time", (), {"monotonic": lambda: now[0]}))
    return now


def test_a_terminals_line_is_rewritten_and_cleared(clock: list[float]) -> None:
    written: list[str] = []
    show = progress.Progress(written.append, terminal=True)
    show("one")
    clock[0] += 1
    show("two")
    show.done()
    assert written == [progress.CLEAR + "one", progress.CLEAR + "two", progress.CLEAR]


def test_a_terminals_line_is_not_rewritten_all_the_time(clock: list[float]) -> None:
    written: list[str] = []
    show = progress.Progress(written.append, terminal=True)
    for _ in range(50):
        show("same")
        clock[0] += 0.01
    assert len(written) == 3


def test_a_long_line_does_not_wrap(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    del clock
    monkeypatch.setenv("COLUMNS", "20")
    written: list[str] = []
    progress.Progress(written.append, terminal=True)("x" * 100)
    assert len(written[0].removeprefix(progress.CLEAR)) == 19


def test_without_a_terminal_there_is_a_plain_line_now_and_then(clock: list[float]) -> None:
    written: list[str] = []
    show = progress.Progress(written.append, terminal=False)
    for second in range(31):
        show(f"{second} s")
        clock[0] += 1
    show.done()
    assert written == ["0 s\n", "15 s\n", "30 s\n"]


def test_what_stays_is_printed_above_the_line(clock: list[float]) -> None:
    del clock
    written: list[str] = []
    show = progress.Progress(written.append, terminal=True)
    show("booting")
    show.print("a line of the log\n")
    show("booting")
    assert written[1:3] == [progress.CLEAR, "a line of the log\n"]
    assert len(written) == 4, "the line does not come back after what was printed"


def test_done_says_nothing_where_nothing_was_shown() -> None:
    written: list[str] = []
    progress.Progress(written.append, terminal=True).done()
    assert written == []
