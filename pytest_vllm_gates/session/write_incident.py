"""Writes the incident of a failed test while its server still runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.session import commands, results, unwritten
from pytest_vllm_gates.session.incidents import IncidentContents, folder
from pytest_vllm_gates.session.items import gate_of, incident_of

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.session.run import Run, Subject

A_GATE = 5
"""Incidents of one gate; the verdict lists further failures, mostly of the same cause."""

_kept_key: pytest.StashKey[bool] = pytest.StashKey()


def note(item: pytest.Item, report: pytest.TestReport, run: Run) -> None:
    """Write the incident of a test that fails, and add its path to the report."""
    subject = results.subject_of(item)
    if subject is None or not report.failed or item.stash.get(_kept_key, False):
        return
    item.stash[_kept_key] = True
    path = keep(item, run, subject, results.reason_of(item))
    if path is None:
        return
    item.user_properties.append(("incident", str(path)))
    report.gate_incidents = [  # type: ignore[attr-defined]
        {
            "family": subject.family.name,
            "gate": gate_of(item),
            "test": item.nodeid.rpartition("::")[2],
            "path": str(path),
            **({"file": str(file)} if (file := commands.own_file(item)) else {}),
        }
    ]


def keep(item: pytest.Item, run: Run, subject: Subject, says: str) -> Path | None:
    """Write the incident of a test that has just failed; return its folder.

    None if none is needed: incidents are off, an incident was replayed, or the gate
    has left enough of them. One that cannot be written is reported at the end of the run.
    """
    from pytest_vllm_gates.incidents import write as incidents_write  # noqa: PLC0415

    gate, test = gate_of(item), item.nodeid.rpartition("::")[2]
    count = run.incidents_left.get((subject.family.name, gate), 0)
    if not run.options.incidents or incident_of(item) or count >= A_GATE:
        return None
    run.incidents_left[subject.family.name, gate] = count + 1
    try:
        incident_folder = IncidentContents(item, run, subject, says)
        incident = incident_folder.incident()
        name = incidents_write.name_of(incident.created, subject.family.name, gate, test)
        clean = incidents_write.cleaned(
            incident, incident_folder.sends, incident_folder.files, run.redactor
        )
        return incidents_write.write(folder(run), name, *clean)
    except Exception as error:  # noqa: BLE001 - writing an incident must not end the run
        unwritten.lose_incident(run, test, error)
        return None
