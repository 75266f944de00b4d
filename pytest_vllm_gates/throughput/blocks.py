"""Drives blocks: identical requests on one server, or on two in turns.

`side_by_side` and `of_pairs` return the figures of blocks as evidence.
"""

from __future__ import annotations

import random
import time
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING

import httpx2 as httpx

from pytest_vllm_gates.catalog import plans
from pytest_vllm_gates.catalog.plans import Block, BlockGroup
from pytest_vllm_gates.load.generator.measure import measure
from pytest_vllm_gates.load.generator.parse import answered
from pytest_vllm_gates.load.requests import Maker
from pytest_vllm_gates.machine import cpu
from pytest_vllm_gates.process.process import paused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pytest_vllm_gates.catalog.plans import Pair, ThroughputPlan
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.load.types import AnsweredRequest
    from pytest_vllm_gates.server.metrics import Load, Metrics

CHUNKS = "chunks"
SETTLE_S = 2.0
LOOK_S = 0.02
NAMES = ("output_tokens_per_s", "ttft_s", "itl_s")
MOST = 200
"""The most blocks a side; of more, every n-th block is used."""
Sides = dict[str, dict[str, list[float]]]


@dataclass
class MeasuredServer:
    """A server that is measured, with its metrics and processes."""

    endpoint: Endpoint
    metrics: Metrics | None
    processes: Callable[[], Sequence[int]] = list
    stoppable: Callable[[], Sequence[int]] = list
    """Its processes that may be paused while another server is measured."""
    watched: Callable[[], AbstractContextManager[Mapping[str, float] | None]] = nullcontext
    """Samples its GPUs, if it has any, during a block."""


@dataclass
class BlockDriver:
    """Makes and drives the blocks of a plan; equal seeds give equal blocks on every server."""

    plan: ThroughputPlan
    text: Sequence[int]
    """Token ids to make prompts of."""
    stall_s: float
    speed: Callable[[], float] | None = None
    """Measures the machine's speed, if the server runs on its processor."""
    _began: float = field(default_factory=time.monotonic)

    def blocks(self, server: MeasuredServer, seed: str, count: int) -> Iterator[Block]:
        """Drive `count` blocks on one server."""
        before = self.speed() if self.speed else None
        for number in range(count):
            block = self.block(server, f"{seed}-{number}")
            after = self.speed() if self.speed else None
            yield _at_speed(block, before, after)
            before = after

    def groups(
        self, ours: MeasuredServer, theirs: MeasuredServer, seed: str, count: int
    ) -> Iterator[BlockGroup]:
        """Drive `count` groups of blocks in turns on two servers.

        The server that begins is random; each begins equally often. The first two blocks of a
        group have the same requests, and so do the last two: no server gets the same request twice.
        The server that is not measured is paused.
        """
        begins = [number % 2 == 0 for number in range(count)]
        random.Random(seed).shuffle(begins)  # noqa: S311 - it hides nothing
        for number, ours_begins in enumerate(begins):
            first, second = (f"{seed}-{number}{part}" for part in "ab")
            begins_with, then = (ours, theirs) if ours_begins else (theirs, ours)
            with paused(then.stoppable):
                opening = self.block(begins_with, first)
            with paused(begins_with.stoppable):
                middle = self.block(then, first), self.block(then, second)
            with paused(then.stoppable):
                closing = self.block(begins_with, second)
            outer = (opening, closing)
            yield BlockGroup(outer, middle) if ours_begins else BlockGroup(middle, outer)

    def block(self, server: MeasuredServer, name: str) -> Block:
        """Drive one block."""
        plan = self.plan
        requests = self._maker(server.endpoint, name).make(name, [None] * plan.requests)
        before, worked = _figures(server.metrics), cpu.look(server.processes())
        at_s = time.monotonic() - self._began
        with server.watched() as gpu_figures:
            driven = measure(
                server.endpoint, requests.planned, plan.concurrency, silence_s=self.stall_s
            )
        spent = cpu.spent(worked, cpu.look(server.processes()))
        answers = [answered(raw) for raw in driven.raws]
        generated = sum(answer.output_tokens for answer in answers)
        after = _settled(server.metrics, before, generated)
        faults = tuple(_faults(answers, plan, before, after))
        streamed = [answer for answer in answers if answer.tokens]
        late = [
            raw.dispatched_s - raw.intended_s for raw in driven.raws if raw.dispatched_s is not None
        ]
        return Block(
            name=name,
            at_s=round(at_s, 3),
            took_s=max((answer.ended_s for answer in answers), default=driven.took_s)
            or driven.took_s,
            output_tokens=generated,
            ttft_s=fmean(request.tokens[0][0] - request.intended_s for request in streamed)
            if streamed
            else 0.0,
            itl_s=_itl_s(streamed),
            faults=faults,
            late_s=max(late, default=0.0),
            cached=(after.cached - before.cached) / (plan.requests * plan.prompt_tokens)
            if before and after
            else None,
            steal=spent.steal,
            others=spent.others,
            server_cpu_s=spent.server_s,
            context=dict(gpu_figures or {})
            | (
                {"preempted": float(after.preempted - before.preempted)} if before and after else {}
            ),
        )

    def _maker(self, endpoint: Endpoint, name: str) -> Maker:
        """Return a maker whose prompts share nothing with the prompts of other blocks."""
        plan, text = self.plan, list(self.text)
        random.Random(name).shuffle(text)  # noqa: S311 - it hides nothing
        load = plans.planned_traffic(
            {
                "prompt_tokens": [plan.prompt_tokens] * 2,
                "output_tokens": [plan.output_tokens] * 2,
                "shared": 0.0,
            }
        )
        return Maker(endpoint, load, text)


def _at_speed(block: Block, before: float | None, after: float | None) -> Block:
    if before is None or after is None:
        return block
    return replace(block, speed=(before + after) / 2)


def _faults(
    answers: Sequence[AnsweredRequest],
    plan: ThroughputPlan,
    before: Load | None,
    after: Load | None,
) -> Iterator[str]:
    """Yield why a block's figures cannot be used."""
    if any(answer.error for answer in answers):
        yield "requests failed: " + next(answer.error for answer in answers if answer.error)
    requests = [answer for answer in answers if not answer.error and answer.counted_by != CHUNKS]
    if any(request.output_tokens != plan.output_tokens for request in requests):
        yield "answers differ in their number of tokens from the request"
    generated = sum(answer.output_tokens for answer in answers)
    if (
        before
        and after
        and len(requests) == len(answers)
        and after.generated - before.generated != generated
    ):
        yield "the server's count of tokens differs from the received tokens"
    if any(not answer.tokens for answer in answers if not answer.error):
        yield "no tokens came"


def _itl_s(answers: Sequence[AnsweredRequest]) -> float:
    """Return the mean time between tokens, over all tokens after the first."""
    spans = [answer.tokens[-1][0] - answer.tokens[0][0] for answer in answers]
    counts = [answer.output_tokens - answer.tokens[0][1] for answer in answers]
    return sum(spans) / sum(counts) if sum(counts) else 0.0


def _figures(metrics: Metrics | None) -> Load | None:
    if metrics is None:
        return None
    try:
        return metrics.load()
    except httpx.HTTPError:
        return None


def _settled(metrics: Metrics | None, before: Load | None, generated: int) -> Load | None:
    """Return the server's figures once they count the generated tokens, or after a while."""
    deadline = time.monotonic() + SETTLE_S
    while (now := _figures(metrics)) and before:
        there = now.generated - before.generated >= generated and not now.in_flight
        if there or time.monotonic() > deadline:
            return now
        time.sleep(LOOK_S)
    return now


def side_by_side(ours: Iterable[Block], theirs: Iterable[Block]) -> Sides:
    """Return each side's figures by name, one for each block, in the order of measurement."""
    return {"ours": _measured([*ours]), "theirs": _measured([*theirs])}


def of_pairs(pairs: Iterable[Pair]) -> Sides:
    """Return the same figures for pairs of boots."""
    groups = [group for pair in pairs for group in pair.groups]
    return side_by_side(
        (block for group in groups for block in group.ours),
        (block for group in groups for block in group.theirs),
    )


def _measured(blocks: Sequence[Block]) -> dict[str, list[float]]:
    fit = [block for block in blocks if not block.faults]
    step = max(1, -(-len(fit) // MOST))
    return {name: [round(getattr(block, name), 5) for block in fit[::step]] for name in NAMES}
