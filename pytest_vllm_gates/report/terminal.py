"""The terminal's summary of a run, and the verdict in words for every kind of report.

The summary has one line for each gate, then the verdict with its reasons.
"""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog.waivers import WaiverState
from pytest_vllm_gates.outcomes import Outcome
from pytest_vllm_gates.verdict.verdict import Promotion, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_vllm_gates.verdict.verdict import GateResult

UNRUN = " did not run"
"""The end of a reason that names a gate that was not selected, or not collected."""
INTROSPECTION = "\nassert "
"""The end of the readable part of a reason: pytest's introspection follows."""


def sentence(document: Mapping[str, Any]) -> str:
    """Return the meaning of the verdict, for the person who decides."""
    promotion, lane = document["promotion"], document["lane"]["name"]
    comparison = document.get("against")
    against = comparison["lane"]["name"] if comparison else ""
    if promotion == "PROMOTE":
        note = f" Nothing that works on {against} broke." if against else ""
        return f"Every gate that applies passed: lane {lane} may go into production.{note}"
    if promotion == "HOLD":
        return (
            f"No gate failed, but not every gate could decide: lane {lane} is not proven yet, "
            "so keep the current deployment."
        )
    kinds = {check["kind"] for check in comparison["checks"]} if comparison else set()
    where = ""
    if "regression" in kinds:
        where = f" that works on {against}"
    elif "both" in kinds:
        where = f", on {against} too,"
    return (
        f"Something users would notice{where} is broken: lane {lane} must not go into production."
    )


def reasons(texts: Iterable[str]) -> list[str]:
    """Return the reasons in order, and at the end one reason for each family's unrun gates."""
    own: list[str] = []
    unrun: dict[str, list[str]] = {}
    for text in texts:
        family, _, gate = text.removesuffix(UNRUN).partition(": ")
        if text.endswith(UNRUN) and gate:
            unrun.setdefault(family, []).append(gate)
        else:
            own.append(text)
    return own + [
        f"{family}: {gates[0]}{UNRUN}"
        if len(gates) == 1
        else f"{family}: {len(gates)} gates{UNRUN}: {', '.join(gates)}"
        for family, gates in unrun.items()
    ]


def for_readers(reason: str) -> tuple[str, str]:
    """Return a reason, and pytest's introspection for people who know the test."""
    explanation, _, added = reason.partition(INTROSPECTION)
    return explanation.strip("\n"), f"assert {added}" if added else ""


COLOURS: Mapping[str, str] = {
    Outcome.PASS: "green",
    Outcome.FAIL: "red",
    Outcome.BLOCKED: "red",
    Outcome.MISSING: "yellow",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.WAIVED: "yellow",
    Outcome.KNOWN: "yellow",
    Outcome.NOT_APPLICABLE: "blue",
    Promotion.PROMOTE: "green",
    Promotion.REJECT: "red",
    Promotion.HOLD: "yellow",
}
WAIVERS = {WaiverState.USED: "yellow", WaiverState.UNUSED: "green", WaiverState.EXPIRED: "red"}
NARROW = 60
INDENT = "    "
TESTS_WIDTH = len("tests")
REASON_LINES = 3
"""The most lines of a gate's reason in the table, if it does not fit beside the outcome."""

# The words for checks that differ between two lanes, by the kind of difference.
KINDS = {
    "regression": "fail only here",
    "both": "fail on both",
    "mended": "failed only there",
    "unequal": "with different outcomes",
}


def side_by_side(against: Mapping[str, Any], axes: Sequence[str] = ()) -> str:
    """Return one line that compares this lane with another; `axes` are their differences."""
    kinds = Counter(check["kind"] for check in against["checks"])
    differences = [f"{count} {KINDS[kind]}" for kind in KINDS if (count := kinds[kind])]
    if count := len(against["drift"]):
        differences.append(f"{count} different without a failure")
    axis = f" ({'axis' if len(axes) == 1 else 'axes'}: {', '.join(axes)})" if axes else ""
    found = ", ".join(differences) or "nothing differs"
    return f"compared with lane {against['lane']['name']}{axis}: {found}"


def lines(
    verdict: Verdict, *, verbose: bool = False, bends: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield the summary as (colour, text) lines.

    `verbose` lists each known defect that was seen, `bends` breaks long reasons into lines.
    """
    width = max(shutil.get_terminal_size().columns, NARROW)
    family_width = max((len(gate.family) for gate in verdict.gates), default=0)
    gate_width = max((len(gate.gate) for gate in verdict.gates), default=0)
    counts = [_counts(test.outcome for test in gate.tests) for gate in verdict.gates]
    count_width = max((len(words) for _, words in counts), default=0)
    for gate, (ran, words) in zip(verdict.gates, counts, strict=True):
        tests = f"{ran:>3} {words:<{max(TESTS_WIDTH, count_width)}}"
        head = (
            f"{gate.family:<{family_width}}  {gate.gate:<{gate_width}}  {gate.outcome:<12}  "
            f"{tests}  {gate.duration_s:7.1f} s"
        )
        first = gate.reason.strip().splitlines()[0] if gate.reason.strip() else ""
        beside = f"{head}  {first}".rstrip()
        fits = len(beside) <= width
        yield COLOURS[gate.outcome], beside if fits else head.rstrip()
        yield from (("", line) for line in ([] if fits else _bent(first, width)))
    yield from (("", line) for line in _requests(verdict.gates, width))
    yield "", ""
    yield COLOURS[verdict.promotion], f"verdict: {verdict.promotion}"
    for reason in reasons(verdict.reasons):
        # A log's reader searches it line by line.
        bent = _wrapped(reason, width, "  - ", INDENT) if bends else [f"  - {reason}"]
        yield from (("", line) for line in bent)
    for command in verdict.next:
        yield "", f"  next: {command}"
    for settled in verdict.waivers:
        yield WAIVERS[settled.state], f"  {settled.told}"
    if verbose:
        for standing in verdict.standing:
            yield "yellow", f"  known defect, seen: {standing}"
    elif verdict.standing:
        yield "yellow", f"  known defects, seen (-v lists each): {_counted(verdict.standing)}"
    for gone in verdict.gone:
        yield "green", f"  known defect, no longer seen (remove its entry): {gone}"


def counted(outcomes: Iterable[str]) -> str:
    """Return the number of tests that ran, and of those that do not apply: "1, 11 n/a"."""
    ran, words = _counts(outcomes)
    return f"{ran}{words.removeprefix('tests').removeprefix('test')}"


def _counts(outcomes: Iterable[str]) -> tuple[int, str]:
    """Return the number of tests that ran, and the words after it: "tests", "test, 11 n/a"."""
    counts = Counter(outcome == Outcome.NOT_APPLICABLE for outcome in outcomes)
    ran, not_applicable = counts[False], counts[True]
    words = "test" if ran == 1 else "tests"
    return ran, f"{words}, {not_applicable} n/a" if not_applicable else words


def _requests(gates: Iterable[GateResult], width: int) -> Iterator[str]:
    """Yield the requests of each family's gates: "qwen3.5: 9 requests: boot 2, tools 7"."""
    families: dict[str, dict[str, int]] = {}
    for gate in gates:
        if gate.requests:
            families.setdefault(gate.family, {})[gate.gate] = gate.requests
    for family, counts in families.items():
        each = ", ".join(f"{gate} {count}" for gate, count in counts.items())
        text = f"{family}: {sum(counts.values())} requests: {each}"
        yield from _wrapped(text, width, "", INDENT)


def _bent(reason: str, width: int) -> list[str]:
    """Return a reason as separate lines; its end is only in the verdict's reasons."""
    return _wrapped(reason, width, INDENT, INDENT, max_lines=REASON_LINES, placeholder=" …")


def _wrapped(text: str, width: int, first: str, others: str, **limits: Any) -> list[str]:
    """Return a text as lines; options and URLs are not broken, so they can be pasted."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
        **limits,
    )


def _counted(standing: Sequence[str]) -> str:
    """Return the number of known defects in each gate: "qwen3.5: stop 2, tools 1"."""
    families: dict[str, Counter[str]] = {}
    for defect in standing:
        family, gate, _ = defect.split(": ", 2)
        families.setdefault(family, Counter())[gate] += 1
    return "; ".join(
        f"{family}: {', '.join(f'{gate} {count}' for gate, count in gates.items())}"
        for family, gates in families.items()
    )
