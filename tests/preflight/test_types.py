"""A check is shown with its cause and its next step."""

from __future__ import annotations

from pytest_vllm_gates.preflight.types import Check, CheckState


def test_explanation_has_finding_cause_and_fix() -> None:
    failed = Check("ports", CheckState.FAILS, "8000 is taken", "another server", "port = 8001")
    assert failed.explain() == "ports: 8000 is taken\ncause: another server\nfix: port = 8001"
    assert Check("ports", CheckState.OK, "8000 is free").explain() == "ports: 8000 is free"
