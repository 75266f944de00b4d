"""Ends a run: its verdict, exit status and report, and its entry in the history.

The report has the verdict's context: the other lane's results, the difference of the bundles, the
lane to go back to, and the project's earlier runs.
"""

from __future__ import annotations

import os
import shlex
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
from pytest_vllm_gates.lanes import describe as descriptions, running
from pytest_vllm_gates.lanes.diff import differences
from pytest_vllm_gates.options import spelling
from pytest_vllm_gates.outcomes import Outcome
from pytest_vllm_gates.report import (
    document as report_document,
    environment as bundle_report,
    incidents as incidents_report,
    publish,
)
from pytest_vllm_gates.report.document import ReportFacts
from pytest_vllm_gates.server.types import KEPT
from pytest_vllm_gates.session import (
    commands as session_commands,
    interrupt,
    items,
    unwritten,
)
from pytest_vllm_gates.session.against import goldens as other_goldens
from pytest_vllm_gates.session.rollback import rollback
from pytest_vllm_gates.verdict import compare_lanes, gates as verdict_gates
from pytest_vllm_gates.verdict.verdict import Verdict, decide

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.environment.environment import Environment
    from pytest_vllm_gates.lanes.describe import BundleDescription, BundleDiff
    from pytest_vllm_gates.session.run import Run


def description(run: Run) -> BundleDescription:
    """Return the bundle with which a run's lane serves; nothing is made, booted or fetched."""
    return descriptions.of(
        run.lane,
        _environment(run),
        run.machine,
        [(subject.family, subject.checkpoint) for subject in run.subjects],
        overlay=run.overlay,
        without=run.options.without_repairs,
        server_version=running.version(run.lane, run.options.api_key_env),
    )


def _environment(run: Run) -> Environment:
    """Return the run's environment, as far as it is known; for a broken one nothing is."""
    if run.environment is not None:
        return run.environment
    try:
        return environments.at_hand(run.lane, cache=files.default_cache())
    except UserError:
        return environments.Environment(None)


def report_facts(run: Run, arguments: Sequence[object]) -> ReportFacts:
    """Return the facts of this run for the report, besides its verdict."""
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
        titles=verdict_gates.titles(),
        reproduce=session_commands.commands(run, verdict_gates.gate_files()),
        redactor=run.redactor,
    )


def bundle(run: Run) -> BundleDiff | None:
    """Return how the lanes differ; None if there is only one."""
    if run.against is None or run.against.name == run.lane.name:
        return None
    return differences(description(run), description(run.of(run.against)))


def against(run: Run) -> dict[str, Any] | None:
    """Return the comparison of this lane's results with the other's, as in the report."""
    document = run.other.document if run.other else None
    if document is None:
        return None
    theirs = report_document.results(document)
    return {
        "lane": document["lane"],
        "promotion": document["promotion"],
        "document": f"{other_goldens.REPORT}/{report_document.NAME}",
        **compare_lanes.documents(
            compare_lanes.checks(run.results, theirs),
            compare_lanes.drift(run.results, theirs, compare_lanes.load()),
        ),
    }


def incidents(run: Run, folder: Path, typed_in: Path) -> list[dict[str, str]]:
    """Return the incidents that a run left, with their paths relative to a folder.

    Each has the command that sends it again, for the folder `typed_in`.
    """
    left = []
    for incident in run.incidents:
        path = Path(incident["path"])
        file = Path(incident["file"]) if "file" in incident else None
        typed = str(session_commands.seen_from(typed_in, path))
        left.append(
            {
                **{key: value for key, value in incident.items() if key != "file"},
                "path": str(session_commands.seen_from(folder, path)),
                "command": session_commands.replaying(run, shlex.quote(typed), file, typed_in),
            }
        )
    return left


RUNS_IN_REPORT = 50


def remember(run: Run, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Add a run to the history; return the last runs, this one at the end, for its report.

    An error of the history becomes a note at the end of the run, and fails nothing.
    """
    path = run.options.history
    if path is None or run.options.repro:  # a replay does not judge a bundle
        return []
    this_run = entry(document)
    try:
        history_store.append(path, this_run)
        return [
            history_entry.document() for history_entry in history_store.runs(path, RUNS_IN_REPORT)
        ]
    except UserError as error:
        run.notes.append(f"not in the history: {error}")
        return [this_run.document()]


@dataclass(frozen=True)
class End:
    """The verdict of a run and pytest's exit status."""

    verdict: Verdict
    status: int
    bundle: BundleDiff | None = None
    """How the lanes differ, if there are two."""
    rollback: Mapping[str, Any] | None = None
    against: Mapping[str, Any] | None = None
    """The comparison of the lanes, if there are two."""
    published: tuple[str, ...] = ()
    """The kind and the path of each written file."""


def end(session: pytest.Session, run: Run, failed: Collection[str]) -> End:
    """Decide, and write the report; `failed` contains the ids of every test that failed.

    The verdict is returned whatever happens to the report: a file that could not be written is
    listed in `published`, or in the run's notes.
    """
    others_failed = bool(set(failed) - run.finished)
    other_run = run.other
    theirs = report_document.results(other_run.document) if other_run and other_run.document else []
    verdict = decide(
        run.results,
        {subject.family.name: _expected(run, subject.family) for subject in run.subjects},
        not_applicable={
            (subject.family.name, gate): reason
            for subject in run.subjects
            for gate, reason in verdict_gates.not_applicable(subject.family).items()
        },
        holds=_holds(session, run, others_failed=others_failed),
        fails_there=compare_lanes.failing(theirs),
        there=run.against.name if run.against else "",
        waivers=run.waivers.settle(run.results),
    )
    verdict = replace(verdict, next=session_commands.following(verdict, session.config, run))
    required = run.options.require_promotion
    status = int(session.exitstatus)
    # The verdict weighs a gate's failure that leads to HOLD and not to REJECT.
    weighed = status == pytest.ExitCode.TESTS_FAILED and required and not others_failed
    if status == pytest.ExitCode.OK or weighed:
        status = verdict.exit_status(require_promotion=required)
    replayed = run.replays.document()
    if replayed and int(session.exitstatus) in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        status = incidents_report.exit_status(replayed)
    ending = End(verdict, status)
    try:
        return _published(session, run, ending)
    except Exception as error:  # noqa: BLE001 - the verdict must be printed anyway
        problem = f"{type(error).__name__}: {error}"
        return replace(
            ending, published=(f"report: it could not be made: {problem}; please report this",)
        )


def _published(session: pytest.Session, run: Run, ending: End) -> End:
    """Write the report, remember the run, and return its end with the files."""
    other_run = run.other
    diff = bundle(run)
    facts = report_facts(run, session.config.invocation_params.args)
    composed = report_document.compose(facts, ending.verdict, ending.status, _context(run, diff))
    composed["next"] = session_commands.from_root(run, composed["next"])
    composed["history"] = remember(run, composed)
    composed["rollback"] = back = rollback(run, ending.verdict.promotion, composed["history"][:-1])
    if notes := unwritten.lines(run):
        composed["notes"] = run.redactor.json(notes)
    messages = publish.publish(
        run.options.report_dir, composed, os.environ, other_run.document if other_run else None
    )
    return replace(
        ending,
        bundle=diff,
        rollback=back,
        against=composed["against"],
        published=tuple(messages),
    )


def _context(run: Run, diff: BundleDiff | None) -> report_document.RunContext:
    context = report_document.RunContext(against=against(run), repro=run.replays.document())
    if folder := run.options.report_dir:
        context["incidents"] = incidents(run, folder, run.options.rootdir)
    if diff:
        context["bundle"] = bundle_report.diff_document(diff)
    return context


def _expected(run: Run, family: Family) -> list[str]:
    """Return the gates that must have a result: all but those with nothing to judge in this run."""
    if run.replays.repro:
        return [items.INCIDENTS]
    idle = {CAPTURED, *verdict_gates.unasked(family)}
    idle |= set() if run.replays.any_kept else {items.INCIDENTS}
    return [gate for gate in verdict_gates.gate_files() if gate not in idle]


def _holds(session: pytest.Session, run: Run, *, others_failed: bool) -> list[str]:
    """Return the reasons that keep this run as a whole from promoting."""
    names = spelling.by_field(run.options)
    holds = []
    if run.other and run.other.problem:
        holds.append(run.other.problem)
    if run.options.update_golden:
        holds.append(
            f"this run recorded goldens ({len(run.recorded)} written): "
            f"run it again without {names['update_golden'][0]}"
        )
    if run.options.update_baseline:
        holds.append(
            f"this run recorded baselines ({len(run.baselines)} written): "
            f"run it again without {names['update_baseline'][0]}"
        )
    if kept_families := [name for name, boot in run.boots.items() if KEPT in boot.evidence]:
        holds.append(
            f"the server of {', '.join(kept_families)} is kept, and not booted and ended for this "
            f"run alone: run it again without {names['keep_server_s'][0]}"
        )
    if run.replays.repro:
        repro = names["repro"][0]
        holds.append(f"this run sent an incident again ({repro}) and judged nothing else")
    holds += interrupt.holds(run)
    unrun = run.collected - run.finished
    if unrun:
        holds.append(f"{len(unrun)} tests were collected and did not run to their end")
    broke = session.exitstatus in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERNAL_ERROR)
    gates_failed = any(result.outcome is Outcome.FAIL for result in run.results)
    if others_failed or (broke and not gates_failed):
        holds.append("something besides the gates failed: an ordinary test, or a collection")
    ran = {result.gate for result in run.results}
    left_out = sum(gate in ran for gate in run.left_out.values())
    if left_out:
        holds.append(f"{left_out} tests of the gates that ran were deselected")
    return holds
