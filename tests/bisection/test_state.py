"""Trials outlive the process that made them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.bisection import state
from pytest_vllm_gates.bisection.state import Trial
from pytest_vllm_gates.bisection.types import TrialAnswer
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

TRIAL = Trial("good", 1, TrialAnswer.GOOD, "passes", 90.0, "mixed.toml", "0.29.0", ("test_boots",))
ASKED = {"good": "a", "bad": "b"}


def test_trials_are_read_back(tmp_path: Path) -> None:
    state.opened(tmp_path / "state.json", ASKED).add(TRIAL)
    again = state.opened(tmp_path / "state.json", ASKED)
    assert again.trials == [TRIAL]
    assert again.known("good", 1) == TRIAL
    assert again.known("good", 2) is None


def test_trials_of_another_question_are_not_used(tmp_path: Path) -> None:
    state.opened(tmp_path / "state.json", ASKED).add(TRIAL)
    assert state.opened(tmp_path / "state.json", {"good": "c", "bad": "b"}).trials == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"trials": [{"answer": "MAYBE"}]}', "{"])
def test_invalid_state_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(UserError, match="start again without it: rm "):
        state.opened(tmp_path / "state.json", ASKED)
