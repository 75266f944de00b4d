"""Progress is one line that rewrites itself on a terminal, and plain lines elsewhere."""

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
    output: list[str] = []
    show = progress.Progress(output.append, terminal=True)
    show("one")
    clock[0] += 1
    show("two")
    show.done()
    assert output == [progress.CLEAR + "one", progress.CLEAR + "two", progress.CLEAR]


def test_a_terminals_line_is_not_rewritten_all_the_time(clock: list[float]) -> None:
    output: list[str] = []
    show = progress.Progress(output.append, terminal=True)
    for _ in range(50):
        show("same")
        clock[0] += 0.01
    assert len(output) == 3


def test_a_long_line_does_not_wrap(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    del clock
    monkeypatch.setenv("COLUMNS", "20")
    output: list[str] = []
    progress.Progress(output.append, terminal=True)("x" * 100)
    assert len(output[0].removeprefix(progress.CLEAR)) == 19


def test_without_a_terminal_lines_are_plain_and_rare(clock: list[float]) -> None:
    output: list[str] = []
    show = progress.Progress(output.append, terminal=False)
    for second in range(31):
        show(f"{second} s")
        clock[0] += 1
    show.done()
    assert output == ["0 s\n", "15 s\n", "30 s\n"]


def test_printed_text_stays_above_the_line(clock: list[float]) -> None:
    del clock
    output: list[str] = []
    show = progress.Progress(output.append, terminal=True)
    show("booting")
    show.print("a line of the log\n")
    show("booting")
    assert output[1:3] == [progress.CLEAR, "a line of the log\n"]
    assert len(output) == 4, "the line does not come back after what was printed"


def test_done_without_a_line_writes_nothing() -> None:
    output: list[str] = []
    progress.Progress(output.append, terminal=True).done()
    assert output == []


def test_steps_show_how_many_of_how_many_and_the_seconds(clock: list[float]) -> None:
    output: list[str] = []
    step = progress.Progress(output.append, terminal=False).steps("qwen3.5: robustness, requests")
    for done in range(1, 41):
        step(done, 40)
        clock[0] += 1
    assert output == [
        "qwen3.5: robustness, requests, 1 of 40 (0 s)\n",
        "qwen3.5: robustness, requests, 16 of 40 (15 s)\n",
        "qwen3.5: robustness, requests, 31 of 40 (30 s)\n",
    ]


def test_last_step_clears_the_line_of_a_terminal(clock: list[float]) -> None:
    written: list[str] = []
    step = progress.Progress(written.append, terminal=True).steps("qwen3.5: long_context, rungs")
    step(1, 2)
    clock[0] += 1
    step(2, 2)
    assert written[0] == f"{progress.CLEAR}qwen3.5: long_context, rungs, 1 of 2 (0 s)"
    assert written[-1] == progress.CLEAR
