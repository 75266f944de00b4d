"""Tests that are run for an incident: which they are, and what each time comes to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.outcomes import Outcome
from pytest_vllm_gates.session.items import INCIDENTS, found_key, incident_of, own_gate_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_vllm_gates.session.replay import Attempt, Replays
    from pytest_vllm_gates.session.run import Run

# The fixtures in which gates keep what one test has measured for all of them.
SHARED = {"walks", "treatments", "climbs", "loads"}


@pytest.fixture(autouse=True)
def _incident(request: pytest.FixtureRequest) -> Attempt | None:
    """The incident that a test is run for, None for an ordinary test."""
    attempt: Attempt | None = getattr(request, "param", None)
    if attempt and attempt.fresh:
        for name in sorted(SHARED & set(request.fixturenames)):
            request.getfixturevalue(name).clear()
    return attempt


@pytest.fixture(scope="session")
def replays(_run: Run) -> Replays:
    """The incidents that this run sends again."""
    return _run.replays


def parametrize(metafunc: pytest.Metafunc, run: Run) -> None:
    """Run a test once more for each incident that is its own."""
    gate = metafunc.definition.path.stem.removeprefix("test_")
    attempts = run.replays.attempts_of(gate, metafunc.function.__name__)
    if not attempts or "_incident" not in metafunc.fixturenames:
        return
    mark = getattr(pytest.mark, INCIDENTS)
    variants = [pytest.param(one, id=one.label, marks=mark) for one in attempts]
    plain = pytest.param(None, id=pytest.HIDDEN_PARAM)
    metafunc.parametrize("_incident", [plain, *variants], indirect=True)


def chosen(items: Iterable[pytest.Item], run: Run) -> list[pytest.Item]:
    """Return the items to run: of those for an incident only its own test; of --repro no others.

    Raises `pytest.UsageError` where the incident of --repro has no test here.
    """
    repro = run.replays.repro
    found = []
    for item in items:
        attempt = incident_of(item)
        if attempt is None:
            if not repro:
                found.append(item)
        elif _plain_name(item, attempt) == attempt.bundle.incident.test and (
            # What ends the server runs once a run, and for the incident too.
            repro or item.get_closest_marker("ends_the_server") is None
        ):
            found.append(item)
    if repro and not found:
        told = repro.incident
        raise pytest.UsageError(
            f"{repro.folder}: no test {told.test} of a gate {told.gate!r} is here; for a gate of "
            "your own name its folder besides: pytest --repro BUNDLE my_gates/"
        )
    return found


def note(item: pytest.Item, report: pytest.TestReport, run: Run) -> None:
    """Have the last report of a test of --repro tell what it came to."""
    result = getattr(report, "gate_result", None)
    if result and (attempt := attempted(item, result, run)):
        report.gate_attempts = [attempt]  # type: ignore[attr-defined]


def attempted(item: pytest.Item, result: Mapping[str, Any], run: Run) -> dict[str, Any] | None:
    """Return what a test of --repro came to, as JSON; None for any other test."""
    from pytest_vllm_gates.incidents import compare  # noqa: PLC0415 - only for a replay

    attempt, bundle = incident_of(item), run.replays.repro
    if attempt is None or bundle is None:
        return None
    found = item.stash.get(found_key, None)
    known = [each for _, some in found.known for each in some] if found else []
    # A bundle tells what was found without secrets, and is held against the same.
    clean = run.redactor.failure
    findings = [
        replace(one, says=clean(one.says)) for one in (*(found.new if found else ()), *known)
    ]
    answer, why = compare.decide(
        bundle.incident,
        Outcome(result["outcome"]),
        clean(result["reason"]),
        [replace(one, says=clean(one.says)) for one in findings],
        other_weights=run.replays.other_weights,
    )
    tape = run.tapes.get(result["family"])
    before = [bundle.sent(one) for one in bundle.incident.sends if attempt.number in (None, 1)]
    pairs = compare.pairs(before, tape.of(item.nodeid) if tape else [])
    return {
        "answer": str(answer),
        "why": why,
        "outcome": str(result["outcome"]),
        "says": result["reason"],
        "seconds": round(result["duration_s"], 3),
        "responses": [compare.compare(*pair).document() for pair in pairs],
    }


def _plain_name(item: pytest.Item, attempt: Attempt) -> str:
    """Return what a test is called without its incident."""
    name = item.name.replace(f"-{attempt.label}", "", 1)
    return name.replace(f"{attempt.label}-", "", 1) if name == item.name else name


def gates_of(item: pytest.Item) -> set[str]:
    """Return the gates a test stands for: its own and, where it is an incident's, that of those."""
    return {own_gate_of(item)} | ({INCIDENTS} if incident_of(item) else set())
