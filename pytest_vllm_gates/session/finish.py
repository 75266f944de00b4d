"""What a run comes to: its verdict, its exit status, its report and its last words.

What the lanes of a run serve with: asked from the session, before anything boots or after.

What a verdict is told with: the other lane, the bundles' difference, the way back, the past.

A run joins its project's history, and the report gets the runs before it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates import files
from pytest_vllm_gates.environment import environment as environments
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.history import store as history_store
from pytest_vllm_gates.history.types import entry
from pytest_vllm_gates.incidents.types import CAPTURED
from pytest_vllm_gates.lanes import describe as descriptions
from pytest_vllm_gates.lanes.diff import differences
from pytest_vllm_gates.outcomes import Outcome
from pytest_vllm_gates.report import (
    document as report_document,
    environment as bundle_report,
    incidents as incidents_report,
    publish,
    terminal,
)
from pytest_vllm_gates.report.document import ReportFacts
from pytest_vllm_gates.server.types import KEPT
from pytest_vllm_gates.session import (
    against as session_against,
    collection,
    commands as session_commands,
    golden_folders,
    items,
)
from pytest_vllm_gates.session.rollback import rollback
from pytest_vllm_gates.verdict import compare_lanes
from pytest_vllm_gates.verdict.verdict import Verdict, decide

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pytest_vllm_gates.environment.environment import Environment
    from pytest_vllm_gates.lanes.describe import BundleDescription, BundleDiff
    from pytest_vllm_gates.session.run import Run


def description(run: Run) -> BundleDescription:
    """Return what a run's lane serves its families with; nothing is made, booted or fetched."""
    return descriptions.of(
        run.lane,
        _environment(run),
        run.machine,
        [(subject.family, subject.checkpoint) for subject in run.subjects],
        overlay=run.overlay,
        without=run.options.without_repairs,
    )


def _environment(run: Run) -> Environment:
    """Return the run's environment, or what is known of it; a broken one tells nothing."""
    if run.environment is not None:
        return run.environment
    try:
        return environments.at_hand(run.lane, cache=files.default_cache())
    except UserError:
        return environments.Environment(None)


def report_facts(run: Run, arguments: Sequence[object]) -> ReportFacts:
    """Return what the report says of this run besides its verdict."""
    return ReportFacts(
        command=["pytest", *map(str, arguments)],
        lane=run.lane,
        lane_why=run.lane_why,
        repairs=[f"{repair.name}: {repair.summary}" for repair in run.repairs],
        versions=run.versions,
        inventory=run.inventory,
        machine=run.machine,
        checkpoints={subject.family.name: subject.checkpoint for subject in run.subjects},
        boots=run.boots,
        titles=collection.titles(),
        reproduce=session_commands.commands(run, collection.gate_files()),
        redactor=run.redactor,
    )


def bundle(of: Run) -> BundleDiff | None:
    """Return what the lanes differ in; None where there is only one."""
    if of.against is None or of.against.name == of.lane.name:
        return None
    return differences(description(of), description(of.of(of.against)))


def against(of: Run) -> dict[str, Any] | None:
    """Return how this lane's results lie beside the other's, as the report has it."""
    other = of.other.document if of.other else None
    if other is None:
        return None
    theirs = report_document.results(other)
    return {
        "lane": other["lane"],
        "promotion": other["promotion"],
        "document": f"{session_against.FOLDER}/{report_document.NAME}",
        **compare_lanes.documents(
            compare_lanes.checks(of.results, theirs),
            compare_lanes.drift(of.results, theirs, compare_lanes.load()),
        ),
    }


def incidents(of: Run, folder: Path) -> list[dict[str, str]]:
    """Return the incidents a run left behind, their paths as they are written from a folder."""
    return [{**incident, "path": seen_from(folder, incident["path"])} for incident in of.incidents]


def seen_from(folder: Path, path: str) -> str:
    """Return a path as it is written from a folder, where it lies in there."""
    inside = Path(path).is_relative_to(folder)
    return str(Path(path).relative_to(folder)) if inside else path


RUNS_IN_REPORT = 50


def remember(run: Run, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Add a run to the history; return the last runs, this one at the end, for its report.

    What goes wrong with the history is told at the end of the run, and fails nothing.
    """
    path = run.options.history
    if path is None or run.options.repro:  # an incident sent again judges no bundle
        return []
    now = entry(document)
    try:
        history_store.append(path, now)
        return [
            history_entry.document() for history_entry in history_store.runs(path, RUNS_IN_REPORT)
        ]
    except UserError as error:
        run.notes.append(f"not in the history: {error}")
        return [now.document()]


@dataclass(frozen=True)
class End:
    """The verdict of a run and pytest's exit status."""

    verdict: Verdict
    status: int
    bundle: BundleDiff | None
    """What the lanes differ in, where there are two."""
    rollback: Mapping[str, Any] | None
    against: Mapping[str, Any] | None
    """How the lanes lie side by side, where there are two."""
    published: tuple[str, ...] = ()
    """What was written where."""


def end(session: pytest.Session, of: Run, failed: Collection[str]) -> End:
    """Decide, and write the report; `failed` are the ids of every test that failed."""
    others_failed = bool(set(failed) - of.finished)
    other = of.other
    theirs = report_document.results(other.document) if other and other.document else []
    verdict = decide(
        of.results,
        {subject.family.name: _expected(of) for subject in of.subjects},
        not_applicable={
            (subject.family.name, gate): reason
            for subject in of.subjects
            for gate, reason in subject.family.not_applicable.items()
        },
        holds=_holds(session, of, others_failed=others_failed),
        fails_there=compare_lanes.failing(theirs),
        there=of.against.name if of.against else "",
        waivers=of.waivers.settle(of.results),
    )
    verdict = replace(verdict, next=session_commands.following(verdict, session.config, of))
    required = of.options.require_promotion
    status = int(session.exitstatus)
    # A gate's failure that holds and does not reject is for the verdict to weigh.
    weighed = status == pytest.ExitCode.TESTS_FAILED and required and not others_failed
    if status == pytest.ExitCode.OK or weighed:
        status = verdict.exit_status(require_promotion=required)
    replayed = of.replays.document()
    if replayed and int(session.exitstatus) in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        status = incidents_report.exit_status(replayed)
    diff = bundle(of)
    facts = report_facts(of, session.config.invocation_params.args)
    composed = report_document.compose(facts, verdict, status, _beside(of, diff))
    composed["history"] = remember(of, composed)
    composed["rollback"] = back = rollback(of, verdict.promotion, composed["history"][:-1])
    told = publish.publish(
        of.options.report_dir, composed, os.environ, other.document if other else None
    )
    return End(verdict, status, diff, back, composed["against"], tuple(told))


def _beside(of: Run, diff: BundleDiff | None) -> report_document.RunContext:
    found = report_document.RunContext(against=against(of), repro=of.replays.document())
    if folder := of.options.report_dir:
        found["incidents"] = incidents(of, folder)
    if diff:
        found["bundle"] = bundle_report.diff_document(diff)
    return found


def tell(terminalreporter: pytest.TerminalReporter, of: Run, found: End) -> None:
    """Show one line a gate, then the verdict, then what was written."""
    names = ", ".join(subject.family.name for subject in of.subjects)
    terminalreporter.section(f"vllm gates: {names} on lane {of.lane.name}")
    here = terminalreporter.config.invocation_params.dir
    for colour, line in _last_words(of, found, here):
        terminalreporter.write_line(line, **({colour: True} if colour else {}))


def _last_words(of: Run, found: End, here: Path) -> Iterator[tuple[str, str]]:
    """Yield what is shown, as (colour, text) lines."""
    if found.bundle:
        yield from (("", line) for line in (*bundle_report.diff_lines(found.bundle), ""))
    yield from terminal.lines(found.verdict, verbose=of.options.verbose)
    if found.against:
        yield "", f"  {terminal.side_by_side(found.against)}"
    if found.rollback:
        commands = found.rollback["command"].splitlines()
        yield "", f"  go back to lane {found.rollback['lane']}:"
        yield from (("", f"    {line}") for line in commands)
    yield from incidents_report.left_lines(incidents(of, here))
    if replayed := of.replays.document():
        yield from incidents_report.replay_lines(replayed)
    yield from (("", f"  recorded ({what}): {path}") for path, what in sorted(of.recorded.items()))
    yield from (("", f"  recorded (baseline): {path}") for path in of.baselines)
    yield from (("", f"  {line}") for line in of.notes)
    for subject in of.subjects:
        old_goldens = golden_folders.notes(of.options.rootdir, here, subject)
        yield from (("", f"  {line}") for line in old_goldens)
    yield from (("", f"  golden nobody uses (delete it?): {path}") for path in _unused_goldens(of))
    yield from (("", line) for line in found.published)


def _expected(of: Run) -> list[str]:
    """Return the gates that must have spoken: all but those with nothing to judge in this run."""
    if of.replays.repro:
        return [items.INCIDENTS]
    idle = {CAPTURED} | (set() if of.replays.any_kept else {items.INCIDENTS})
    return [gate for gate in collection.gate_files() if gate not in idle]


def _unused_goldens(of: Run) -> list[Path]:
    """Return the project's goldens that no test of a whole run asked for."""
    if of.left_out or of.replays.repro or of.interrupted or of.collected - of.finished:
        return []
    root = of.options.rootdir / golden_folders.FOLDER
    return sorted(
        path
        for subject in of.subjects
        for path in golden_folders.folder(root, subject).glob("*.txt")
        if path not in of.goldens_used
    )


def _holds(session: pytest.Session, of: Run, *, others_failed: bool) -> list[str]:
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
    if kept := [name for name, boot in of.boots.items() if KEPT in boot.evidence]:
        holds.append(
            f"the server of {', '.join(kept)} is kept, and not booted and ended for this run "
            "alone: run it again without --keep-server"
        )
    if of.replays.repro:
        holds.append("this run sent an incident again (--repro) and judged nothing else")
    if of.interrupted:
        holds.append("the run was interrupted")
    unrun = of.collected - of.finished
    if unrun:
        holds.append(f"{len(unrun)} tests were collected and did not run to their end")
    broke = session.exitstatus in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERNAL_ERROR)
    gates_failed = any(result.outcome is Outcome.FAIL for result in of.results)
    if others_failed or (broke and not gates_failed):
        holds.append("something besides the gates failed: an ordinary test, or a collection")
    ran = {result.gate for result in of.results}
    left_out = sum(gate in ran for gate in of.left_out.values())
    if left_out:
        holds.append(f"{left_out} tests of the gates that ran were deselected")
    return holds
