"""An answer that a limit cut is the beginning of the whole one, each part in its field."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conversations.exchanges import answer, family
from pytest_vllm_gates.conversations.checks import finish

if TYPE_CHECKING:
    from pytest_vllm_gates.client.answer import Answer

QWEN = family("qwen3.5")
PLAIN = answer("Paris it is.", reasoning="They ask.", token_ids=(1, 2, 3, 4))


def cut(content: str, reasoning: str, tokens: tuple[int, ...] = (1, 2)) -> Answer:
    return answer(content, reasoning=reasoning, finish_reason="length", token_ids=tokens)


@pytest.mark.parametrize(
    "cut_answer",
    [
        cut("", "They"),
        cut("", "They ask.\n"),
        cut("", ""),
        cut("\n\nParis", "They ask."),
        cut("Paris \N{REPLACEMENT CHARACTER}", "They ask."),
        cut("", "They ask.</thi"),
        cut("Paris it is.<", "They ask."),
        cut("Paris it is. \n<|im", "They ask."),
        PLAIN,
    ],
)
def test_the_beginning_of_the_plain_answer_is_right(cut_answer: Answer) -> None:
    assert list(finish.beginning(cut_answer, PLAIN, QWEN)) == []


@pytest.mark.parametrize(
    ("cut_answer", "sentence"),
    [
        (cut("They", ""), "content is 'They', and the uncut answer begins with 'Paris it is.'"),
        (cut("They", "", ()), "content is 'They'"),
        (
            cut("", "They ask.Paris"),
            "reasoning is 'They ask.Paris', and the uncut answer begins",
        ),
        (cut("</think>Paris", "They ask."), "content is '</think>Paris'"),
        (cut("aris", "They ask."), "content is 'aris'"),
    ],
)
def test_other_text_in_a_cut_answer_is_a_fault(cut_answer: Answer, sentence: str) -> None:
    (fault,) = finish.beginning(cut_answer, PLAIN, QWEN)
    assert fault.startswith(sentence)


@pytest.mark.parametrize(
    "longer", [cut("", "They ask", ()), cut("", "They ask."), cut("Paris", "They ask.", ())]
)
def test_plain_answer_that_was_cut_itself_may_continue(longer: Answer) -> None:
    """A limit one token above the plain answer's allows a longer answer."""
    assert (
        list(finish.beginning(longer, cut("", "They as\N{REPLACEMENT CHARACTER}", ()), QWEN)) == []
    )
    (fault,) = finish.beginning(cut("", "We ask", ()), cut("", "They ask.", ()), QWEN)
    assert fault.startswith("reasoning is 'We ask', and the uncut answer begins with 'They ask.'")
    (fault,) = finish.beginning(cut("They", "", ()), cut("", "They ask.", ()), QWEN)
    assert fault.startswith("content is 'They', and the uncut answer begins with ''")


@pytest.mark.parametrize(
    ("tokens", "same"), [((1, 2), True), ((), True), ((1, 2, 3, 4), True), ((1, 9), False)]
)
def test_cut_answers_of_other_tokens_are_not_comparable(
    *, tokens: tuple[int, ...], same: bool
) -> None:
    assert finish.comparable(cut("", "They", tokens), PLAIN) is same
