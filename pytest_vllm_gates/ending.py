"""What a run comes to: its verdict, its exit status, its report and its last words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates import goldens, other_lane, repeating, run
from pytest_vllm_gates.facts import watched
from pytest_vllm_gates.facts.outcome import Outcome
from pytest_vllm_gates.judge import next_steps, sides
from pytest_vllm_gates.judge.verdict import Verdict, decide
from pytest_vllm_gates.remembering import remember
from pytest_vllm_gates.report import document, terminal

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


@dataclass(frozen=True)
class End:
    """The verdict of a run and pytest's exit status."""

    verdict: Verdict
    status: int


def end(session: pytest.Session, of: run.Run, failed: Collection[str]) -> End:
    """Decide, and write the report; `failed` are the ids of every test that failed."""
    others_failed = bool(set(failed) - of.finished)
    other = of.other
    theirs = document.results(other.document) if other and other.document else []
    verdict = decide(
        of.results,
        {subject.family.name: list(run.gate_files()) for subject in of.subjects},
        not_applicable={
            (subject.family.name, gate): reason
            for subject in of.subjects
            for gate, reason in subject.family.not_applicable.items()
        },
        holds=_holds(session, of, others_failed=others_failed),
        fails_there=sides.failing(theirs),
        there=of.against.name if of.against else "",
        waivers=of.waivers.settle(of.results),
    )
    verdict = replace(verdict, next=next_steps.commands(verdict, repeating.ran(session.config, of)))
    required = of.options.require_promotion
    status = int(session.exitstatus)
    # A gate's failure that holds and does not reject is for the verdict to weigh.
    weighed = status == pytest.ExitCode.TESTS_FAILED and required and not others_failed
    if status == pytest.ExitCode.OK or weighed:
        status = verdict.exit_status(require_promotion=required)
    found = End(verdict, status)
    beside = document.Beside()
    if other and other.document:
        beside["against"] = _against(of, other.document)
    facts = of.facts(session.config.invocation_params.args)
    composed = document.compose(facts, verdict, status, beside)
    composed["history"] = remember(of, composed)
    if of.options.report_dir:
        document.write(of.options.report_dir, composed)
    return found


def tell(terminalreporter: pytest.TerminalReporter, of: run.Run, found: End) -> None:
    """Show one line a gate, then the verdict, then what was written."""
    names = ", ".join(subject.family.name for subject in of.subjects)
    terminalreporter.section(f"vllm gates: {names} on lane {of.lane.name}")
    for colour, line in terminal.lines(found.verdict):
        terminalreporter.write_line(line, **({colour: True} if colour else {}))
    for path, what in sorted(of.recorded.items()):
        terminalreporter.write_line(f"  recorded ({what}): {path}")
    for path in of.baselines:
        terminalreporter.write_line(f"  recorded (baseline): {path}")
    for line in of.notes:
        terminalreporter.write_line(f"  {line}")
    for path in _unused_goldens(of):
        terminalreporter.write_line(f"  golden nobody uses (delete it?): {path}")
    if of.options.report_dir:
        terminalreporter.write_line(f"report: {of.options.report_dir / document.NAME}")


def _against(of: run.Run, other: dict[str, Any]) -> dict[str, Any]:
    """Return how this lane's results lie beside the other's, as the report has it."""
    theirs = document.results(other)
    return {
        "lane": other["lane"],
        "promotion": other["promotion"],
        "document": f"{other_lane.FOLDER}/{document.NAME}",
        **sides.documents(
            sides.checks(of.results, theirs), sides.drift(of.results, theirs, watched.load())
        ),
    }


def _unused_goldens(of: run.Run) -> list[Path]:
    """Return the project's goldens that no test of a whole run asked for."""
    if of.left_out or of.interrupted or of.collected - of.finished:
        return []
    return sorted(
        path
        for subject in of.subjects
        for path in goldens.folder(of.options.rootdir, subject).glob("*.txt")
        if path not in of.goldens_used
    )


def _holds(session: pytest.Session, of: run.Run, *, others_failed: bool) -> list[str]:
    """Return what keeps this run as a whole from promoting."""
    holds = []
    if of.other and of.other.problem:
        holds.append(of.other.problem)
    if of.options.update_golden:
        holds.append(
            f"this run recorded goldens ({len(of.recorded)} written): "
            "run it again without --update-golden"
        )
    if of.options.update_baseline:
        holds.append(
            f"this run recorded baselines ({len(of.baselines)} written): "
            "run it again without --update-baseline"
        )
    if of.interrupted:
        holds.append("the run was interrupted")
    unrun = of.collected - of.finished
    if unrun:
        holds.append(f"{len(unrun)} tests were collected and did not run to their end")
    broke = session.exitstatus in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERNAL_ERROR)
    gates_failed = any(one.outcome is Outcome.FAIL for one in of.results)
    if others_failed or (broke and not gates_failed):
        holds.append("something besides the gates failed: an ordinary test, or a collection")
    ran = {result.gate for result in of.results}
    left_out = sum(gate in ran for gate in of.left_out.values())
    if left_out:
        holds.append(f"{left_out} tests of the gates that ran were deselected")
    return holds
