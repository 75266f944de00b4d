"""What is kept with pytest's items, and what they tell: the gate and the incident of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_vllm_gates.judge.known import Sorted
    from pytest_vllm_gates.run.evidence import Evidence
    from pytest_vllm_gates.session.replay import Attempt
    from pytest_vllm_gates.session.run import Run

INCIDENTS = "incidents"
run_key: pytest.StashKey[Run] = pytest.StashKey()
evidence_key: pytest.StashKey[Evidence] = pytest.StashKey()
found_key: pytest.StashKey[Sorted] = pytest.StashKey()


def gate_of(item: pytest.Item) -> str:
    """Return the gate a test belongs to: its file's name, but for an incident that is replayed."""
    return INCIDENTS if incident_of(item) else own_gate_of(item)


def own_gate_of(item: pytest.Item) -> str:
    """Return the gate whose file a test stands in."""
    return item.path.stem.removeprefix("test_")


def incident_of(item: pytest.Item) -> Attempt | None:
    """Return the incident that a test is run for, None for an ordinary test."""
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("_incident") if callspec else None


def parametrize(metafunc: pytest.Metafunc, run: Run) -> None:
    """Spread a gate's tests over the run's families and the conversations there are."""
    if "subject" in metafunc.fixturenames:
        metafunc.parametrize(
            "subject",
            run.subjects,
            ids=[one.family.name for one in run.subjects],
            indirect=True,
            scope="session",
        )
    for name in {"conversation", "question"} & set(metafunc.fixturenames):
        wanted = [one for one in run.conversations if one.ask or name == "conversation"]
        metafunc.parametrize(name, wanted, ids=[one.name for one in wanted], indirect=True)
