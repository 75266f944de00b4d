"""The gate, incident, evidence and parameters of a pytest item.

The verdict and JUnit take a test's evidence from the item.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.known_defects import SortedFindings
    from pytest_vllm_gates.session.run import Attempt, Run


class Evidence(MutableMapping[str, Any]):
    """The observations of a test, recorded before it asserts. Values are JSON."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._values: dict[str, Any] = {}

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[name] = value
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        properties = [pair for pair in self._item.user_properties if pair[0] != name]
        self._item.user_properties[:] = [*properties, (name, text)]

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __delitem__(self, name: str) -> None:
        del self._values[name]
        self._item.user_properties[:] = [
            pair for pair in self._item.user_properties if pair[0] != name
        ]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


INCIDENTS = "incidents"
NO_COMBINATION = "none"
"""The name of a test's parameter if --features requests nothing."""
run_key: pytest.StashKey[Run] = pytest.StashKey()
evidence_key: pytest.StashKey[Evidence] = pytest.StashKey()
findings_key: pytest.StashKey[SortedFindings] = pytest.StashKey()


def gate_of(item: pytest.Item) -> str:
    """Return the gate of a test: its file's name, except for an incident that is replayed."""
    return INCIDENTS if incident_of(item) else own_gate_of(item)


def own_gate_of(item: pytest.Item) -> str:
    """Return the gate whose file contains a test."""
    return item.path.stem.removeprefix("test_")


def incident_of(item: pytest.Item) -> Attempt | None:
    """Return the incident for which a test is run, None for an ordinary test."""
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("_incident") if callspec else None


def parametrize(metafunc: pytest.Metafunc, run: Run) -> None:
    """Spread a gate's tests over the run's families and its conversations."""
    if "subject" in metafunc.fixturenames:
        metafunc.parametrize(
            "subject",
            run.subjects,
            ids=[subject.family.name for subject in run.subjects],
            indirect=True,
            scope="session",
        )
    if "combination" in metafunc.fixturenames:
        ends = pytest.mark.ends_the_server  # to boot a combination, the run's own server ends
        metafunc.parametrize(
            "combination",
            [pytest.param(one, id=one.name, marks=ends) for one in run.combinations]
            or [pytest.param(None, id=NO_COMBINATION)],
            indirect=True,
            scope="session",
        )
    for name in {"conversation", "question"} & set(metafunc.fixturenames):
        conversations = [
            conversation
            for conversation in run.conversations
            if conversation.ask or name == "conversation"
        ]
        metafunc.parametrize(
            name,
            conversations,
            ids=[conversation.name for conversation in conversations],
            indirect=True,
        )
