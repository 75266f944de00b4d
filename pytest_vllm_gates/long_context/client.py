"""Climbs a ladder of prompt lengths, and watches the server on every rung."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import form, http
from pytest_vllm_gates.client.form import reading
from pytest_vllm_gates.long_context.types import (
    LadderResult,
    PromptReply,
    Refusal,
    Rung,
    RungResult,
)
from pytest_vllm_gates.process.process import resident_bytes
from pytest_vllm_gates.server.watchdog import RestState, Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.client.completion import Completion
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.server.metrics import Metrics

COMPLETIONS = "/v1/completions"
LOOK_S = 0.1
"""The pause between two looks at a server that computes."""
SOON_S = 0.01
"""The first pause of a wait for rest, which ends in milliseconds; each pause is twice the last."""
REST_S = 15.0
"""How long a server may take until no request is in flight."""
IMPATIENT_S = 1.0
"""The same limit after a server once exceeded it."""
ERROR_CHARACTERS = 300
REFUSAL_LIMIT_S = 60.0


@dataclass(frozen=True)
class Ladder:
    """The requests: the rungs, and those that must be refused, by prompt and output length."""

    text: Sequence[int]
    """Token ids to cut prompts from; at least as many as the longest prompt has."""
    rungs: Sequence[Rung]
    too_long: Sequence[tuple[str, int, int]]


@dataclass
class LadderTarget:
    """A server, and the means to watch it."""

    endpoint: Endpoint
    metrics: Metrics | None
    canary: Callable[[], Completion]
    """Sends a short question."""
    stall_s: float
    """How long the server may make no progress while requests are in flight."""
    processes: Callable[[], Sequence[int]] = list
    """The ids of the server's processes; empty if this run did not start them."""
    folder: Path | None = None
    """The folder for the stacks of a hanging server."""
    _salts: dict[int, str] = field(default_factory=dict)
    _patience_s: float = REST_S

    def climb(
        self, ladder: Ladder, context: int, step: Callable[[int, int], None] = lambda *_: None
    ) -> LadderResult:
        """Send every rung and then the too long requests, until the server does not recover.

        `step` is called with the number of finished rungs and the total.
        """
        total = len(ladder.rungs) + len(ladder.too_long)
        self.canary()  # so that the next canary has a warm prefix, like all later ones
        healthy = self.canary()
        rungs: list[RungResult] = []
        for rung in ladder.rungs:
            rungs.append(self._rung(rung, ladder.text[: rung.prompt_tokens]))
            step(len(rungs), total)
            if not rungs[-1].survived:
                break
        not_sent = [rung.name for rung in ladder.rungs[len(rungs) :]]
        refusals: list[Refusal] = []
        if not not_sent and all(rung_result.survived for rung_result in rungs):
            for name, prompt, output in ladder.too_long:
                refusals.append(self._refusal(name, ladder.text, prompt, output))
                step(len(rungs) + len(refusals), total)
                if refusals[-1].rest.canary.error:
                    break
        not_sent += [name for name, *_ in ladder.too_long[len(refusals) :]]
        return LadderResult(context, healthy, tuple(rungs), tuple(refusals), tuple(not_sent))

    def _rung(self, rung: Rung, prompt: Sequence[int]) -> RungResult:
        watchdog = Watchdog(self.metrics)
        watchdog.silent_s()
        before = watchdog.last
        replies: list[PromptReply | None] = [None] * rung.at_once
        clients = [http.client(self.endpoint) for _ in replies]
        finished = threading.Semaphore(0)

        def ask(number: int) -> None:
            try:
                replies[number] = _ask(clients[number], self._body(rung, prompt, number))
            finally:
                finished.release()

        threads = [
            threading.Thread(target=ask, args=(number,), daemon=True)
            for number in range(len(replies))
        ]
        for thread in threads:
            thread.start()
        hang = None
        waiting = len(threads)
        while waiting:
            if watchdog.silent_s() > self.stall_s:
                hang = watchdog.hang(self.endpoint, self.processes(), self.folder)
                break
            until = time.monotonic() + LOOK_S
            while waiting and finished.acquire(timeout=max(0.0, until - time.monotonic())):
                waiting -= 1
        else:
            watchdog.silent_s()  # reads what a fast rung did since the last reading
        for client in clients:
            client.close()
        error = f"no answer: the server hung for {hang.silent_s:.0f} s" if hang else "no answer"
        return RungResult(
            rung,
            tuple(reply or PromptReply(error=error) for reply in replies),
            None if hang else self._rest(),
            watchdog.waited,
            watchdog.last.preempted - before.preempted if watchdog.last and before else 0,
            hang,
        )

    def _body(self, rung: Rung, prompt: Sequence[int], number: int) -> dict[str, Any]:
        if rung.prefix == "cold" or number not in self._salts:
            self._salts[number] = secrets.token_hex(8)
        return {
            "model": self.endpoint.model,
            "prompt": list(prompt),
            "max_tokens": rung.output_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "logprobs": 2,
            "return_token_ids": True,
            "cache_salt": self._salts[number],
        }

    def _refusal(self, name: str, ids: Sequence[int], prompt: int, output: int) -> Refusal:
        repeated = [*ids] * (prompt // len(ids) + 1)
        body = {
            "model": self.endpoint.model,
            "prompt": repeated[:prompt],
            "max_tokens": output,
            "ignore_eos": True,
        }
        status: int | None = None
        completed: int | None = None
        try:
            with http.client(self.endpoint) as client:
                reply = client.post(COMPLETIONS, json=body, timeout=REFUSAL_LIMIT_S)
            status, text = reply.status_code, reply.text[:ERROR_CHARACTERS]
            if reply.is_success:
                with reading("the answer"):
                    completed = form.count(
                        reply.json()["usage"]["completion_tokens"], "completion_tokens"
                    )
        except httpx.HTTPError as error:
            text = f"{type(error).__name__}: {error}"
        return Refusal(name, prompt, output, status, text, completed, self._rest())

    def _rest(self) -> RestState:
        """Wait until no request is in flight, then send the canary."""
        deadline = time.monotonic() + self._patience_s
        in_flight: int | None = None
        kv_usage: float | None = None
        pause_s = SOON_S
        while self.metrics is not None:
            try:
                load = self.metrics.load()
            except httpx.HTTPError:
                break
            in_flight, kv_usage = load.in_flight, round(load.kv_usage, 4)
            if in_flight == 0 and kv_usage == 0:
                break
            if time.monotonic() > deadline:
                self._patience_s = IMPATIENT_S
                break
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_S)
        return RestState(self.canary(), in_flight, kv_usage, resident_bytes(self.processes()))


def _ask(client: httpx.Client, body: dict[str, Any]) -> PromptReply:
    """Request a completion without a time limit: the watchdog ends it."""
    begun = time.monotonic()
    try:
        reply = client.post(COMPLETIONS, json=body, timeout=None)
        if not reply.is_success:
            error = f"answered {reply.status_code}: {reply.text[:ERROR_CHARACTERS]}"
            return PromptReply(error=error, seconds=time.monotonic() - begun)
        with reading("the answer"):
            return _reply(reply.json(), time.monotonic() - begun)
    except (httpx.HTTPError, RuntimeError) as error:
        message = f"no answer: {type(error).__name__}: {error}"
        return PromptReply(error=message, seconds=time.monotonic() - begun)


def _reply(answer: dict[str, Any], seconds: float) -> PromptReply:
    choice = answer["choices"][0]
    scored = choice.get("logprobs") or {}
    return PromptReply(
        finish_reason=choice["finish_reason"],
        prompt_tokens=(answer.get("usage") or {}).get("prompt_tokens"),
        output=tuple(choice.get("token_ids") or ()),
        output_logprobs=tuple(scored.get("token_logprobs") or ()),
        leads=tuple(_lead(place) for place in scored.get("top_logprobs") or ()),
        seconds=seconds,
    )


def _lead(candidates: Mapping[str, float] | None) -> float:
    """Return the lead of the best candidate over the second, in nats; 0 if it is unknown."""
    best, second, *_ = [*sorted((candidates or {}).values(), reverse=True), 0.0, 0.0]
    return best - second if len(candidates or {}) > 1 else 0.0
