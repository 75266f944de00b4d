"""Blocks, boots and pairs of a machine that has its ups and downs."""

from __future__ import annotations

import math
import random
from typing import Any

from pytest_vllm_gates.catalog.plans import Block, BlockGroup, Pair, planned_throughput

PLAN = planned_throughput()
GROUPS = PLAN.against.groups


class Noise:
    """Blocks of a machine that has its ups and downs."""

    def __init__(self, seed: int = 1, sd: float = 0.05) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - noise
        self._sd = sd

    def block(self, slower: float = 0.0, **more: Any) -> Block:
        took = math.exp(slower + self._chance.gauss(0, self._sd))
        return Block("b", 0.0, took, 1000, 0.1 * took, 0.01 * took, **more)

    def boot(self, slower: float = 0.0, **more: Any) -> list[Block]:
        return [self.block(slower, **more) for _ in range(PLAN.baseline.blocks)]

    def pair(self, slower: float = 0.0, groups: int = GROUPS) -> Pair:
        return Pair(
            tuple(
                BlockGroup((self.block(slower), self.block(slower)), (self.block(), self.block()))
                for _ in range(groups)
            )
        )
