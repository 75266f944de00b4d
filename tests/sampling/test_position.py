"""The prompt is taken after which most is open, and none where nothing is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from simulated_sampler import SimulatedServer

from pytest_vllm_gates.sampling.position import MOST_READ, find, promise
from pytest_vllm_gates.sampling.types import Law

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.sampling.types import Sample


class Vocabulary(SimulatedServer):
    """A server whose laws depend on the prompt."""

    laws: tuple[dict[int, float], ...] = (
        {0: 0.0, 1: -9.0},
        dict.fromkeys(range(9), -1.0),
        {n: -0.5 * n for n in range(99)},
    )

    def __init__(self) -> None:
        super().__init__(Law.of(self.laws[0]), np.random.default_rng(3))
        self.read: list[int] = []

    def token_ids(self, text: str) -> list[int]:
        return [int(text)]

    def outlooks(self, texts: Sequence[str]) -> list[tuple[tuple[int, ...], Mapping[int, float]]]:
        return [((int(text),), self._likeliest(int(text))) for text in texts]

    def _likeliest(self, number: int) -> dict[int, float]:
        law = Law.of(self.laws[number])
        return dict(zip(law.ids[:20].tolist(), law.logprobs[:20].tolist(), strict=True))

    def vocabulary(self, prompt: Sequence[int]) -> Law:
        self.read.append(prompt[0])
        self.law = Law.of(self.laws[prompt[0]])
        return self.law

    def complete(self, prompt: Sequence[int], body: Mapping[str, Any]) -> list[Sample]:
        self.law = Law.of(self.laws[prompt[0]])
        return super().complete(prompt, body)


def test_the_prompt_with_the_most_information_per_draw_is_taken() -> None:
    position = find(Vocabulary(), ["0", "1", "2"])  # type: ignore[arg-type]
    assert position is not None
    assert position.prompt == (2,)
    assert position.exact


def test_no_other_prompt_is_tried_once_one_has_enough_information() -> None:
    server = Vocabulary()
    server.laws = (dict(enumerate([0.0, *[-5.0 - n / 50 for n in range(300)]])),)
    position = find(server, ["0", "no prompt"])  # type: ignore[arg-type]
    assert position is not None
    assert position.law.information > 5


def test_few_laws_are_read_and_the_most_promising_ones_first() -> None:
    server = Vocabulary()
    likely = dict.fromkeys(range(9), -1.0)
    server.laws = (*[likely] * 9, {n: -0.5 * n for n in range(99)})
    position = find(server, [str(number) for number in range(10)])  # type: ignore[arg-type]
    assert position is not None
    assert position.prompt == (9,)
    assert server.read[:2] == [0, 9]
    assert len(server.read) == MOST_READ


def test_the_promise_of_a_whole_law_is_its_information() -> None:
    law = Law.of({n: -0.5 * n for n in range(99)})
    whole = dict(zip(law.ids.tolist(), law.logprobs.tolist(), strict=True))
    assert promise(whole) == pytest.approx(law.information)


def test_rare_tokens_beside_the_likeliest_promise_something() -> None:
    assert promise({0: np.log(0.9)}) > promise({0: np.log(0.5), 1: np.log(0.5)})


def test_without_a_choice_of_tokens_no_position_is_found() -> None:
    assert find(Vocabulary(), ["0"]) is None  # type: ignore[arg-type]
