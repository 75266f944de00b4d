"""The isolation gate's questions are data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.client.questions import holds_anothers, load
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


def test_the_shipped_questions_are_all_different() -> None:
    questions = load().questions
    assert len(questions) == len(set(questions)) == 17


def test_a_file_with_one_question_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "isolation.toml"
    path.write_text('answer_tokens = 5\nfiller = "x"\nquestions = ["Hello!"]\n')
    with pytest.raises(UserError, match="at least 2 items"):
        load(path)


@pytest.mark.parametrize(
    ("said", "anothers"),
    [("ticket 0a", False), ("no idea", False), ("ticket 1b", True), ("ticket 0a and 2c", True)],
)
def test_answer_may_contain_another_requests_text(said: str, *, anothers: bool) -> None:
    assert holds_anothers(Completion(content=said), ["0a", "1b", "2c"], 0) is anothers
