"""Each prompt of a request with several prompts gets its own answer."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.dialects import batch
from pytest_vllm_gates.dialects.batch import PromptBatch
from pytest_vllm_gates.outcomes import NotApplicable

if TYPE_CHECKING:
    from collections.abc import Callable

Body = dict[str, Any]


def choice(index: int, *tokens: int) -> Body:
    return {"index": index, "text": "…", "token_ids": list(tokens)}


def usage(prompt: int, completion: int) -> Body:
    total = prompt + completion
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}


ALONE: tuple[Body, ...] = (
    {"choices": [choice(0, 1, 2)], "usage": usage(4, 2)},
    {"choices": [choice(0, 3)], "usage": usage(5, 1)},
    {"choices": [choice(0, 5, 6, 7)], "usage": usage(6, 3)},
)
TOGETHER: Body = {
    "choices": [choice(0, 1, 2), choice(1, 3), choice(2, 5, 6, 7)],
    "usage": usage(15, 6),
}


def said(change: Callable[[Body], object]) -> list[str]:
    together = copy.deepcopy(TOGETHER)
    change(together)
    return [each.says for each in batch.findings(PromptBatch({}, together, ALONE))]


def test_answers_to_their_own_prompts_have_no_finding() -> None:
    assert said(dict.copy) == []


def test_another_token_is_allowed() -> None:
    def draw(body: Body) -> None:
        body["choices"][1]["token_ids"] = [4, 4]
        body["usage"] = usage(15, 7)

    assert said(draw) == []


@pytest.mark.parametrize(
    ("change", "sentences"),
    [
        (
            lambda body: body["choices"].reverse(),
            ["3 prompts were sent, and the choices have the indices [2, 1, 0]"],
        ),
        (
            lambda body: body["choices"].pop(),
            ["3 prompts were sent, and the choices have the indices [0, 1]"],
        ),
        (
            lambda body: body["choices"][1].update(token_ids=[1, 2]),
            ["prompt 1 gets the answer that prompt 0 gets alone"],
        ),
        (
            lambda body: body["usage"].update(prompt_tokens=4),
            ["prompt_tokens is 4, and alone 4 + 5 + 6"],
        ),
        (
            lambda body: body["usage"].update(completion_tokens=2),
            ["completion_tokens is 2, and alone 2 + 1 + 3"],
        ),
    ],
)
def test_another_prompts_answer_is_reported(
    change: Callable[[Body], object], sentences: list[str]
) -> None:
    assert said(change) == sentences


def test_too_few_prompts_are_not_sent() -> None:
    nowhere = Endpoint("http://127.0.0.1:9/v1", "m")
    with pytest.raises(NotApplicable, match="does not return the tokens"):
        batch.ask(nowhere, [[1, 2], [1, 2], []])
