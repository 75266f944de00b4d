"""Sends a server so many requests, or for so long: canaries, agents, and clients that hang up."""

from __future__ import annotations

import itertools
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.completion import CHAT, CompletionClient
from pytest_vllm_gates.client.questions import ended_in_thinking, ticket_faults
from pytest_vllm_gates.client.sameness import compare
from pytest_vllm_gates.endurance import checks
from pytest_vllm_gates.endurance.agents import Agent
from pytest_vllm_gates.endurance.known import PICTURE, taken
from pytest_vllm_gates.endurance.types import (
    AGENT,
    CANARY,
    LEFT,
    LOST,
    THOUGHT,
    EnduranceBlock,
    EnduranceResult,
    EnduredRequest,
)
from pytest_vllm_gates.process.process import open_handles, resident_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.completion import Completion
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.client.questions import Questions
    from pytest_vllm_gates.endurance.known import KnownAnswer
    from pytest_vllm_gates.endurance.types import EndurancePlan
    from pytest_vllm_gates.server.metrics import Metrics

SEED = 38
MOST_FAILED = 20
"""The number of failed requests in a row after which the run ends."""
BEGINNING_TOKENS = 256
"""The length of the beginning that all agents share."""
TURN_TOKENS = 160
"""The most that a turn adds to a conversation, beside the tool's result."""
LOOK_S = 0.2


@dataclass
class EnduranceTarget:
    """A server, and the requests for it."""

    endpoint: Endpoint
    family: Family
    plan: EndurancePlan
    questions: Questions
    canaries: Mapping[str, Mapping[str, Any]]
    """Requests by name; their first answers are the expected ones."""
    metrics: Metrics | None
    concurrency: int
    context: int
    """Tokens of context the server has."""
    answer_s: float
    """How long an answer may take."""
    invariant: bool
    """Whether an answer must not depend on its batch at all."""
    most_requests: int | None
    """The number of requests; None for as many as fit in `most_s`."""
    most_s: float | None
    processes: Callable[[], Sequence[int]] = list
    progress: Callable[[str], None] = lambda _: None
    adapters: Sequence[str] = ()
    """The served adapters; agents use them and the model by turns."""
    healthy: Completion | None = None
    """The first canary's answer before all else."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _sent: list[EnduredRequest] = field(default_factory=list)
    _canaries: list[bool] = field(default_factory=list)
    """Whether each answer differs from the first one, in the order of the answers."""
    _tokens: int = 0
    _failed: int = 0
    """Requests without an answer, in a row."""
    _ended: str = ""
    _least_odds: float = 1.0

    def hold(self) -> EnduranceResult:
        """Send requests until the end, or until a fault is certain."""
        client = CompletionClient(self.endpoint, self.answer_s)
        known = taken(client, self.canaries)
        self.healthy = known[0].answer
        if self.healthy.error:
            return EnduranceResult((), (), 0.0, "the first question is not answered")
        # Servers that take no pictures answered none of them.
        shows = any(each.name.startswith(PICTURE) for each in known)
        agents = [self._agent(lane, shows=shows) for lane in range(self.concurrency)]
        begun = time.monotonic()
        with ThreadPoolExecutor(self.concurrency) as pool:
            working = [pool.submit(self._work, client, agent, known, begun) for agent in agents]
            blocks = [*self._blocks(working, begun)]
            for future in working:
                future.result()
        sent = tuple(sorted(self._sent, key=lambda each: each.number))
        return EnduranceResult(
            sent, tuple(blocks), time.monotonic() - begun, self._ended, self._least_odds
        )

    def _agent(self, lane: int, *, shows: bool) -> Agent:
        """Return an agent whose conversation has room for as many turns as its context allows."""
        filler = self.questions.filler
        long = len(http.token_ids(self.endpoint, filler))
        result = len(http.token_ids(self.endpoint, self.plan.tool_result))
        room = self.plan.context_share * self.context - BEGINNING_TOKENS
        models = ("", *self.adapters)
        return Agent(
            self.family,
            filler * max(1, BEGINNING_TOKENS // long),
            self.plan.tool_result,
            max(1, int(room / (TURN_TOKENS + result))),
            random.Random(SEED + lane),  # noqa: S311 - the same in every run
            model=models[lane % len(models)],
            shows=shows and lane % 2 == 0,
        )

    def _work(
        self,
        client: CompletionClient,
        agent: Agent,
        known: Sequence[KnownAnswer],
        begun: float,
    ) -> None:
        """Send one request after the other, until the run is over."""
        while True:
            with self._lock:
                number = next(self._numbers)
                if self._over(number, begun):
                    return
            if number % self.plan.canary_every == 0:
                canary = known[number // self.plan.canary_every % len(known)]
                answer = client.ask(canary.body)
                sameness = compare(canary.answer, answer, invariant=self.invariant)
                fault = f"{canary.name}: {sameness.fault}" if sameness.fault else ""
                kind = LOST if answer.error else CANARY
                sent = EnduredRequest(number, kind, fault, canary.body if fault else {})
                self._keep(sent, answer)
                continue
            body, nonce = agent.next()
            leaves = number % self.plan.leave_every == 0
            fault = self._leave(body) if leaves else ""
            answer = client.ask(body)
            kind = LEFT if leaves else AGENT
            if not fault and self.family.thinks_always and ended_in_thinking(answer):
                kind = THOUGHT
            elif not fault:
                fault = "; ".join(ticket_faults(answer, [nonce], 0))
            self._keep(EnduredRequest(number, kind, fault, body if fault else {}), answer)

    def _over(self, number: int, begun: float) -> bool:
        late = self.most_s is not None and time.monotonic() - begun >= self.most_s
        enough = self.most_requests is not None and number > self.most_requests
        return bool(self._ended) or late or enough

    def _leave(self, body: Mapping[str, Any]) -> str:
        """Begin a long answer and hang up in its middle; return what went wrong before that."""
        long = {"max_tokens": self.plan.leave_tokens, "ignore_eos": True, "stream": True}
        free = {name: value for name, value in body.items() if name != "structured_outputs"}
        request = {"model": self.endpoint.model, **free, **long}
        try:
            with (
                http.client(self.endpoint) as client,
                client.stream("POST", CHAT, json=request, timeout=self.answer_s) as reply,
            ):
                if not reply.is_success:
                    return f"answered {reply.status_code}"
                next(reply.iter_bytes(), b"")
        except httpx.HTTPError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def _keep(self, sent: EnduredRequest, answer: Completion) -> None:
        with self._lock:
            self._sent.append(sent)
            self._tokens += len(answer.token_ids)
            self._failed = self._failed + 1 if answer.error else 0
            if self._failed >= MOST_FAILED and not self._ended:
                self._ended = f"{self._failed} requests in a row had no answer"
            if sent.kind == CANARY:
                self._canaries.append(bool(sent.fault))
                odds = checks.odds_of_right(
                    sum(self._canaries), len(self._canaries), self.plan.tolerated
                )
                self._least_odds = min(self._least_odds, odds)
                if odds <= self.plan.odds and not self._ended:
                    self._ended = (
                        f"{sum(self._canaries)} of {len(self._canaries)} questions got an answer "
                        f"that differs from the first (odds of a correct server {odds:.0e})"
                    )

    def _blocks(self, working: Sequence[Future[None]], begun: float) -> Iterator[EnduranceBlock]:
        """Yield the server's figures after each block, while requests are sent."""
        blocks = 1
        at, tokens = begun, 0
        while any(not future.done() for future in working):
            time.sleep(LOOK_S)
            with self._lock:
                count, made = len(self._sent), self._tokens
            if count < blocks * self.plan.block_requests:
                continue
            blocks = count // self.plan.block_requests + 1
            now = time.monotonic()
            processes = self.processes()
            yield EnduranceBlock(
                now - begun, count, made - tokens, now - at, resident_bytes(processes),
                open_handles(processes), self._preempted(),
            )  # fmt: skip
            at, tokens = now, made
            self.progress(
                f"{self.family.name}: endurance, {count} requests in {now - begun:.0f} s, "
                f"{sum(self._canaries)} of {len(self._canaries)} canaries differ"
            )

    def _preempted(self) -> int | None:
        if self.metrics is None:
            return None
        try:
            return self.metrics.load().preempted
        except httpx.HTTPError:
            return None
