"""A mistyped gate's name after `-m` is reported; other marks are the project's."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.session import marks

GATES = ("boot", "streaming", "chat_template")
DECLARED = ["boot: it boots", "streaming: streams", "chat_template: prompts", "slow(why): mine"]


@pytest.mark.parametrize(
    ("expression", "guess"),
    [
        ("streeming", "streaming"),
        ("boot or chat_templat", "chat_template"),
        ("not (stream or boot)", "streaming"),
        ("Boot", "boot"),
    ],
)
def test_mistyped_gate_is_reported_with_the_nearest(expression: str, guess: str) -> None:
    with pytest.raises(UserError, match=f"did you mean '{guess}'"):
        marks.check(expression, DECLARED, GATES)


@pytest.mark.parametrize(
    "expression",
    ["", "boot or streaming", "not (boot and slow)", "slow(why='x')", "nothing_alike", "True"],
)
def test_known_marks_and_marks_unlike_any_gate_are_left_alone(expression: str) -> None:
    marks.check(expression, DECLARED, GATES)
