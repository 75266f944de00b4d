"""The gate decides nothing where most answers ended in their thinking."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pytest_vllm_gates.gates
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from conftest import Project

OWN = """
from pytest_vllm_gates.endurance.types import AGENT, THOUGHT, EnduranceResult, EnduredRequest
from pytest_vllm_gates.gates import test_endurance as gate

def test_own(checking):
    sent = [EnduredRequest(number, kind) for number, kind in enumerate([AGENT, *{kinds}], 1)]
    gate.test_every_turn_is_answered_for_its_own_agent(EnduranceResult(sent, (), 1.0), checking)
"""


@pytest.fixture(autouse=True)
def _gate(project: Project) -> None:  # noqa: ARG001 - its gates are those that are shipped
    path = Path(pytest_vllm_gates.gates.__file__).with_name("test_endurance.py")
    shutil.copy(path, verdict_gates.GATES)


@pytest.mark.parametrize(
    ("kinds", "outcome"), [("[THOUGHT]", "PASS"), ("[THOUGHT] * 2", "INCONCLUSIVE")]
)
def test_most_answers_must_have_a_nonce(project: Project, kinds: str, outcome: str) -> None:
    project.write("mine/test_own.py", OWN.format(kinds=kinds))
    project.gates("mine", "-k", "test_own")
    assert list(project.outcomes().values()) == [outcome]
