"""The prompt is taken after which most is open, and none where nothing is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from simulated_sampler import SimulatedServer

from pytest_vllm_gates.sampling.position import find
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

    def token_ids(self, text: str) -> list[int]:
        return [int(text)]

    def vocabulary(self, prompt: Sequence[int]) -> Law:
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


def test_without_a_choice_of_tokens_no_position_is_found() -> None:
    assert find(Vocabulary(), ["0"]) is None  # type: ignore[arg-type]
