"""No incident in golden/incidents happens again: each is sent again in every run.

Catches faults that this team has already had. An incident is judged by the test that found it,
and this gate reports it under that test's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.outcomes import NotApplicable

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.session.items import Evidence
    from pytest_vllm_gates.session.run import Replays

pytestmark = [pytest.mark.incidents, pytest.mark.without_weights]


def test_every_kept_incident_can_be_sent_again(
    family: Family, replays: Replays, evidence: Evidence, request: pytest.FixtureRequest
) -> None:
    kept = [folder for folder in replays.kept if folder.incident.family == family.name]
    evidence["incidents"] = [folder.name for folder in kept]
    if replays.refused:
        pytest.fail("\n".join(replays.refused), pytrace=False)
    if not kept:
        raise NotApplicable(f"no incident of {family.name} is kept in golden/incidents")
    here = {(item.path.stem.removeprefix("test_"), item.name) for item in request.session.items}
    lost = [folder for folder in kept if (folder.incident.gate, folder.incident.test) not in here]
    evidence["without_a_test"] = [folder.name for folder in lost]
    chosen = request.config.option.markexpr or request.config.option.keyword
    assert not lost or chosen, (
        f"{lost[0].folder}: test {lost[0].incident.test} of gate "
        f"{lost[0].incident.gate!r} no longer exists, so the incident is not replayed; for a gate "
        "outside the package, name its folder as well"
    )
