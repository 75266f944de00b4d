"""Replays of incidents in a run: that of `--repro`, or those that are kept as tests.

This module reads the incidents, selects their tests, and records the outcome of each attempt.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.environment.overlay import repairs
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents import (
    captured_notes,
    checks,
    replay_target,
    same_server,
    types as incidents_types,
)
from pytest_vllm_gates.incidents.read import read
from pytest_vllm_gates.incidents.types import CAPTURED, LANE, PROMPT_FILES
from pytest_vllm_gates.options import spelling
from pytest_vllm_gates.outcomes import Outcome
from pytest_vllm_gates.session.items import INCIDENTS, findings_key, incident_of, own_gate_of
from pytest_vllm_gates.session.run import Replays

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.incidents.read import IncidentFolder
    from pytest_vllm_gates.options.table import Options
    from pytest_vllm_gates.session.run import Attempt, Run, Subject

KEPT = "golden/incidents"


def resolve(options: Options) -> Replays:
    """Read the incidents that a run is to send again, and choose where.

    Raises `UserError` for an incident of --repro that is refused or cannot be replayed here.
    """
    project = options.rootdir
    if options.repro is None:
        return _kept(project)
    incident_folder = read(options.repro)
    for send in incident_folder.incident.sends:
        incident_folder.sent(send)  # an unreadable one is reported before anything boots
    _refuse_routes(incident_folder)
    incident, notes = incident_folder.incident, []
    family = families.load(incident.family, project)
    lane = None
    if not (options.lane or options.base_url):
        lane = replay_target.lane_of(incident_folder, project)
        if lane is None:
            where = incident.lane.base_url or f"lane {incident.lane.name}"
            notes.append(
                f"it was seen at {where}, which is not here: a lane of this machine serves"
            )
        elif lane.file.name == LANE:
            notes.append(f"lane {lane.name} is the incident's own")
            notes += checks.described(lane)
    checkpoint, absent = (None, "")
    if not options.checkpoint:
        attached = bool(options.base_url or (lane and lane.base_url))
        checkpoint, absent = _weights(incident_folder, family, attached=attached)
    if checkpoint and not absent:
        notes.append(f"weights: {checkpoint.source}")
    notes += [absent] if absent else []
    notes += captured_notes.notes(
        incident_folder,
        times=options.times,
        stands_in=bool(absent),
        times_option=spelling.name(options, "times"),
        url_option=spelling.name(options, "base_url"),
    )
    return Replays(
        repro=incident_folder,
        times=options.times,
        family=family,
        checkpoint=checkpoint,
        lane=lane,
        notes=tuple(notes),
        other_weights=bool(absent or options.checkpoint),
    )


def _weights(
    incident_folder: IncidentFolder, family: families.Family, *, attached: bool
) -> tuple[Checkpoint | None, str]:
    """Return the weights of a replay and what is absent; None if the running server has its own."""
    try:
        checkpoint, absent = replay_target.checkpoint_of(incident_folder, family)
    except UserError:
        if attached:
            return None, ""
        raise
    if absent and attached and not incident_folder.names(PROMPT_FILES):
        return None, ""
    return checkpoint, absent


def as_it_was(
    replays: Replays, subject: Subject, lane: Lane, options: Options
) -> tuple[Subject, Lane, Options]:
    """Return the subject for the incident of --repro: as its server was, as far as that is known.

    Options of the command line stay. Notes of `replays` name the remaining differences.
    """
    assert replays.repro  # noqa: S101 - only then
    incident, notes = replays.repro.incident, []
    if lane.base_url:
        if incident.flags is not None:
            notes.append(f"not as it was then: {same_server.RUNS_ELSEWHERE}")
        replays.notes = (*replays.notes, *notes)
        return subject, lane, options
    here = same_server.Setup(subject.family, subject.checkpoint, lane)
    known = [repair.name for repair in repairs(lane.overlay_path)]
    if replays.lane:
        here, notes = same_server.restored(incident, here)
        if options.overlay and not options.without_repairs:
            without = same_server.left_out(incident, known)
            some = len(without) < len(known)
            options = replace(
                options, overlay=some or not known, without_repairs=without if some else ()
            )
    used = [name for name in known if options.overlay and name not in options.without_repairs]
    differ = [
        *same_server.differences(incident, here),
        *same_server.unrepaired(incident, used),
        *same_server.other_versions(incident, _versions(lane)),
    ]
    if incident.lane.form == "base_url":
        differ = []  # the flags of that server were not known
    if incident.trace and not options.trace:
        differ.append(f"without the trace {incident.trace}: name it with --load-trace")
    notes += [f"not as it was then: {'; '.join(differ)}"] if differ else []
    replays.notes = (*replays.notes, *notes)
    return replace(subject, family=here.family, checkpoint=here.checkpoint), here.lane, options


def needing_weights(replays: Replays, options: Options) -> set[str]:
    """Return the family of --repro if the incident needs a whole server whose weights are here."""
    repro = replays.repro
    stands_in = replays.other_weights and not options.checkpoint
    if repro is None or repro.incident.renderer is not False or stands_in:
        return set()
    return {repro.incident.family}


def _versions(lane: Lane) -> Mapping[str, str]:
    """Return the versions of a lane's environment, or of its lock; none if it is broken."""
    try:
        return environment.at_hand(lane, cache=files.default_cache()).versions
    except UserError:
        return {}


def _kept(project: Path) -> Replays:
    folder = project / KEPT
    incident_folders, refused = [], []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.startswith("."):
            continue
        try:
            incident_folder = read(path)
            _refuse_routes(incident_folder)
            incident_folders.append(incident_folder)
        except UserError as error:
            refused.append(str(error))
    return Replays(kept=tuple(incident_folders), refused=tuple(refused))


def _refuse_routes(incident_folder: IncidentFolder) -> None:
    """Raise `UserError` for a captured incident that would send more than inference.

    Its requests are sent with the key of the user who replays it.
    """
    incident = incident_folder.incident
    refused = list(checks.route_faults(incident.sends, incidents_types.load().routes))
    if incident.gate == CAPTURED and refused:
        raise UserError(
            f"the incident {incident_folder.folder} is refused: it would send {refused[0]} with "
            "your key, and that is not inference\n"
            "only the routes of pytest_vllm_gates/data/replay.toml are sent again"
        )


@pytest.fixture(autouse=True)
def _incident(request: pytest.FixtureRequest, _run: Run) -> Attempt | None:
    """The incident for which a test is run, None for an ordinary test."""
    attempt: Attempt | None = getattr(request, "param", None)
    if attempt and attempt.fresh:
        _run.measured.clear()
    return attempt


@pytest.fixture(scope="session")
def replays(_run: Run) -> Replays:
    """The incidents that this run sends again."""
    return _run.replays


def parametrize(metafunc: pytest.Metafunc, run: Run) -> None:
    """Run a test once more for each incident that belongs to it."""
    gate = metafunc.definition.path.stem.removeprefix("test_")
    attempts = run.replays.attempts_of(gate, metafunc.function.__name__)
    if not attempts or "_incident" not in metafunc.fixturenames:
        return
    mark = getattr(pytest.mark, INCIDENTS)
    variants = [pytest.param(attempt, id=attempt.label, marks=mark) for attempt in attempts]
    plain = pytest.param(None, id=pytest.HIDDEN_PARAM)
    metafunc.parametrize("_incident", [plain, *variants], indirect=True)


def chosen(items: Iterable[pytest.Item], run: Run) -> list[pytest.Item]:
    """Return the items to run: for an incident only its own test; with --repro no others.

    Raises `pytest.UsageError` if the incident of --repro has no test here.
    """
    repro = run.replays.repro
    selected = []
    for item in items:
        attempt = incident_of(item)
        if attempt is None:
            if not repro:
                selected.append(item)
        elif _plain_name(item, attempt) == attempt.incident_folder.incident.test and (
            # A test that ends the server runs once a run, and for the incident too.
            repro or item.get_closest_marker("ends_the_server") is None
        ):
            selected.append(item)
    if repro and not selected:
        incident = repro.incident
        raise pytest.UsageError(
            f"{repro.folder}: no test {incident.test} of a gate {incident.gate!r} is here; for "
            "your own gate, name its folder as well: pytest --repro INCIDENT my_gates/"
        )
    return selected


def note(item: pytest.Item, report: pytest.TestReport, run: Run) -> None:
    """Put the result of a test of --repro into its last report."""
    result = getattr(report, "gate_result", None)
    if result and (attempt := attempt_record(item, result, run)):
        report.gate_attempts = [attempt]  # type: ignore[attr-defined]


def attempt_record(item: pytest.Item, result: Mapping[str, Any], run: Run) -> dict[str, Any] | None:
    """Return the result of a test of --repro, as JSON; None for any other test."""
    from pytest_vllm_gates.incidents import compare, expectation  # noqa: PLC0415 - only for a replay

    attempt, incident_folder = incident_of(item), run.replays.repro
    if attempt is None or incident_folder is None:
        return None
    sorted_findings = item.stash.get(findings_key, None)
    known = [each for _, some in sorted_findings.known for each in some] if sorted_findings else []
    # An incident contains the findings without secrets, and is compared with the same.
    clean = run.redactor.failure
    findings = [
        replace(finding, says=clean(finding.says))
        for finding in (*(sorted_findings.new if sorted_findings else ()), *known)
    ]
    tape = run.tapes.get(result["family"])
    before = [incident_folder.sent(send) for send in incident_folder.incident.sends]
    pairs = compare.pairs(before, tape.of(item.nodeid) if tape else [])
    statuses = {then.name: answered.status for then, answered in pairs}
    answer, why = compare.decide(
        incident_folder.incident,
        Outcome(result["outcome"]),
        clean(result["reason"]),
        findings,
        other_weights=run.replays.other_weights,
        statuses=statuses,
        error_expected=expectation.expects_error(expectation.of(incident_folder)),
    )
    boot = run.boots.get(result["family"])
    now = boot.endpoint.model if boot and boot.endpoint else ""
    models = (incident_folder.incident.model, now)
    compared = pairs if attempt.number in (None, 1) else []
    return {
        "answer": str(answer),
        "why": why,
        "outcome": str(result["outcome"]),
        "says": result["reason"],
        "seconds": round(result["duration_s"], 3),
        "statuses": statuses,
        "unmet": list(result["evidence"].get("unmet", ())),
        "responses": [compare.compare(*pair, models=models).document() for pair in compared],
    }


def _plain_name(item: pytest.Item, attempt: Attempt) -> str:
    """Return the name of a test without its incident."""
    name = item.name.replace(f"-{attempt.label}", "", 1)
    return name.replace(f"{attempt.label}-", "", 1) if name == item.name else name


def gates_of(item: pytest.Item) -> set[str]:
    """Return the gates of a test: its own and, for an incident's test, that of the incident."""
    return {own_gate_of(item)} | ({INCIDENTS} if incident_of(item) else set())
