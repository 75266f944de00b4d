"""Measures the throughput of two running servers: blocks in turns, and no boots."""

from __future__ import annotations

import contextlib
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.catalog.plans import Pair
from pytest_vllm_gates.outcomes import Inconclusive
from pytest_vllm_gates.session.against.boots import WARM_UP_BLOCKS, LaneComparison, server_of
from pytest_vllm_gates.throughput.running import RunningDecision, against_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.catalog.plans import BetweenRunning
    from pytest_vllm_gates.session.launch import Launch
    from pytest_vllm_gates.throughput.blocks import BlockDriver, MeasuredServer
    from pytest_vllm_gates.throughput.decision import Decision

GROUP_BLOCKS = 4
RUNS = "runs"
"""The key, in the evidence, of the lanes of a comparison without boots."""


@dataclass
class RunningComparison(LaneComparison):
    """Rounds of blocks in turns on two servers, ours first; each round is kept as a pair."""

    seed: str = field(default_factory=lambda: secrets.token_hex(4))
    """Makes this run's prompts unlike those of earlier runs, which the servers may have cached."""

    def measure(self, *, whole: bool) -> Decision:
        """Measure round after round until the speeds differ clearly, or all rounds if `whole`.

        Raises `Blocked` or `Infrastructure` if a server does not answer, and `Inconclusive`
        if other clients use one.
        """
        _, most = self.plan.running.rounds
        ours, theirs = self._boot(self.ours, 0), self._boot(self.theirs, 0)
        self._note_starts(ours, theirs)
        driver = self._driver(ours)
        decision = against_server(self.pairs, self.plan).decision
        with contextlib.ExitStack() as stack:
            our_server, their_server = (
                stack.enter_context(_alone(launch, self)) for launch in (ours, theirs)
            )
            began = time.monotonic()
            for server in (our_server, their_server):
                [*driver.blocks(server, f"warm-up-{self.seed}", WARM_UP_BLOCKS)]
            block_s = (time.monotonic() - began) / (2 * WARM_UP_BLOCKS)
            self.progress(f"{self.subject.family.name}: {_expected(self.plan.running, block_s)}")
            while len(self.pairs) < most:
                so_far = self._round(driver, our_server, their_server)
                decision = so_far.decision
                self.progress(
                    f"{self.subject.family.name}: round {len(self.pairs)} of at most {most}: "
                    f"{decision.brief()}"
                )
                if so_far.settled and not whole:
                    break
        return decision

    def evidence(self) -> dict[str, Any]:
        """Return how it was measured, as JSON."""
        return {**super().evidence(), RUNS: True, "seed": self.seed}

    def _round(
        self, driver: BlockDriver, ours: MeasuredServer, theirs: MeasuredServer
    ) -> RunningDecision:
        began = time.monotonic()
        seed = f"round-{len(self.pairs)}-{self.seed}"
        groups = tuple(driver.groups(ours, theirs, seed, self.plan.running.groups))
        self.pairs.append(Pair(groups, took_s=time.monotonic() - began))
        self._keep()
        return against_server(self.pairs, self.plan)


def _expected(plan: BetweenRunning, block_s: float) -> str:
    """Return how long the rounds will take, given the seconds of a block."""
    round_min = plan.groups * GROUP_BLOCKS * block_s / 60
    least, most = (round_min * rounds for rounds in plan.rounds)
    return f"first look at the speeds in about {least:.1f} min, the last in {most:.0f} min"


@contextlib.contextmanager
def _alone(launch: Launch, comparison: LaneComparison) -> Iterator[MeasuredServer]:
    """Yield a server for measuring; raises `Inconclusive` if it cannot be measured alone.

    Later requests of others show in the server's count of tokens: such blocks are left out.
    """
    endpoint = launch.endpoint()
    with server_of(launch, comparison.ours) as server:
        try:
            others = server.metrics.load().in_flight if server.metrics else 0
        except httpx.HTTPError:
            others = 0
        if others:
            raise Inconclusive(
                f"other clients use the server at {endpoint.base_url}: {others} requests are in "
                "flight; measure it when idle"
            )
        yield server
