"""Text and JSON about incidents: the incidents of a run, and the outcome of a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.conversations.checks.tool_calls import interval
from pytest_vllm_gates.incidents.types import ReplayOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.incidents.types import Incident

COLOURS = {
    ReplayOutcome.REPRODUCED: "red",
    ReplayOutcome.NOT_MET: "red",
    ReplayOutcome.DIFFERENT: "yellow",
    ReplayOutcome.NOT_JUDGED: "yellow",
    ReplayOutcome.NOT_REPRODUCED: "green",
}
DIFF_LINES = 24
RESPONSES = 3


def document(
    path: Path, incident: Incident, attempts: Sequence[Mapping[str, Any]], notes: Sequence[str]
) -> dict[str, Any]:
    """Return the outcome of a replay, in the form of `repro` in verdict.json.

    The answer is the worst of all attempts: one that reproduces is enough. An incident that was not
    sent again at all is DIFFERENT. For a request without a recorded answer, the tries with unmet
    expectations are counted.
    """
    answers = [ReplayOutcome(attempt["answer"]) for attempt in attempts]
    worst = next((colour for colour in COLOURS if colour in answers), ReplayOutcome.DIFFERENT)
    shown = worst if worst is ReplayOutcome.NOT_MET else ReplayOutcome.REPRODUCED
    again, times = answers.count(shown), len(answers)
    return {
        "bundle": str(path),
        "gate": incident.gate,
        "test": incident.test,
        "answer": str(worst),
        "then": incident.says,
        "times": times,
        "reproduced": again,
        "different": answers.count(ReplayOutcome.DIFFERENT),
        "rate": again / times if times else None,
        "interval": [round(value, 4) for value in interval(again, times)] if times else None,
        "notes": list(notes),
        "attempts": [dict(attempt) for attempt in attempts],
    }


def exit_status(replayed: Mapping[str, Any]) -> int:
    """Return 0 if the incident did not happen again in any way, else 1."""
    return int(replayed["answer"] != ReplayOutcome.NOT_REPRODUCED)


def replay_lines(replayed: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the outcome of a replay, as (colour, text)."""
    answer, attempts = ReplayOutcome(replayed["answer"]), replayed["attempts"]
    rate = ""
    if replayed["times"] > 1:
        low, high = replayed["interval"]
        rate = (
            f" in {replayed['reproduced']} of {replayed['times']} tries: {replayed['rate']:.0%}, "
            f"{low:.1%} to {high:.1%} at 95 % confidence"
        )
        if replayed["different"]:
            rate += f"; different in {replayed['different']}"
    yield COLOURS[answer], f"incident: {answer}{rate}"
    yield "", f"  {replayed['bundle']}: {replayed['gate']}: {replayed['test']}"
    for note in replayed["notes"]:
        yield "yellow", f"  {note}"
    yield "", f"  then: {_first(replayed['then'])}"
    attempt = next((attempt for attempt in attempts if attempt["answer"] == answer), None)
    if attempt is None:
        yield "yellow", "  it was not sent again: the run ended before that"
        return
    says = _first(attempt["says"]) or attempt["outcome"]
    explained = answer in (ReplayOutcome.NOT_MET, ReplayOutcome.NOT_JUDGED)
    why = str(attempt["why"])
    yield "", f"  now:  {why if explained else f'{says} ({why})'}"
    responses = [response for attempt in attempts for response in attempt["responses"]]
    known = [response for response in responses if response.get("recorded", True)]
    unknown = [response for response in responses if not response.get("recorded", True)]
    apart = [response for response in known if not response["same"]]
    if known:
        differ = "differs" if len(apart) == 1 else "differ"
        yield "", f"  {counted(len(known), 'answer')} compared, {len(apart)} {differ}"
    for response in ([*apart, *unknown] or known)[:RESPONSES]:
        yield "", f"  {response['name']}: {_timing(response)}"
        lines = response["diff"].splitlines()
        for line in lines[:DIFF_LINES]:
            yield {"-": "red", "+": "green"}.get(line[:1], ""), f"    {line}"
        if len(lines) > DIFF_LINES:
            yield "", f"    and {len(lines) - DIFF_LINES} lines more, in verdict.json"


def left_lines(incidents: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the commands that replay a run's incidents, as (colour, text)."""
    for incident in incidents:
        yield "", f"  incident: {incident['gate']}: {incident['command']}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _first(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""


def _timing(response: Mapping[str, Any]) -> str:
    (first, now_first), (last, now_last) = response["first_s"], response["seconds"]
    if not response.get("recorded", True):
        return (
            f"no answer was recorded; now: first byte {_seconds(now_first)}, "
            f"last byte {_seconds(now_last)}"
        )
    if first == last == 0:  # an answer that was pasted
        return (
            f"no times were recorded; now: first byte {_seconds(now_first)}, "
            f"last byte {_seconds(now_last)}"
        )
    return (
        f"first byte {_seconds(first)} then, {_seconds(now_first)} now; "
        f"last byte {_seconds(last)} then, {_seconds(now_last)} now"
    )


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.3f} s"
