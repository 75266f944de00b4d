"""Suspends a server in each way (sleep, pause, weights read again), and observes it meanwhile.

The routes are those of vLLM's development mode (`VLLM_SERVER_DEV_MODE=1`): 0.32,
`vllm/entrypoints/serve/dev/sleep`, `serve/dev/rpc` and `rl/online`; before, `serve/dev/rlhf`. A
server that slept without its weights is woken as described in docs.vllm.ai, features/sleep_mode.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.completion import CompletionClient
from pytest_vllm_gates.lifecycle.types import Held, OpenOverHold
from pytest_vllm_gates.server.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from pytest_vllm_gates.client.completion import Completion
    from pytest_vllm_gates.client.endpoint import Endpoint

DEVELOPMENT = {"VLLM_SERVER_DEV_MODE": "1"}
SLEEPS, PAUSES = "/is_sleeping", "/is_paused"
RPC = "/collective_rpc"
READ_WEIGHTS = {"method": "reload_weights"}
HELD_S = 1.0
"""How long a server stays suspended once a request waits for it."""
BEGIN_S = 30.0
LOOK_S = 0.05
CALL_S = 120.0
WORDS = 200


@dataclass(frozen=True)
class HoldWay:
    """A way to suspend a server, and to resume it."""

    name: str
    begin: str
    """The route that suspends it."""
    end: tuple[tuple[str, Mapping[str, Any] | None], ...]
    """The routes, with the bodies sent to them, that resume it."""
    state: str = ""
    """The route that reports whether it is suspended; empty if nothing suspends it."""
    keeps: bool = False
    """Whether open answers are to continue as if nothing had happened."""


HOLDS = (
    HoldWay("weights read again", "", ((RPC, READ_WEIGHTS),)),
    HoldWay("sleep, level 0", "/sleep?level=0", (("/wake_up?tags=scheduling", None),), SLEEPS),
    HoldWay("sleep, level 1", "/sleep?level=1", (("/wake_up", None),), SLEEPS),
    HoldWay(
        "sleep, level 2",
        "/sleep?level=2",
        (
            ("/wake_up?tags=weights", None),
            (RPC, READ_WEIGHTS),
            ("/wake_up?tags=kv_cache", None),
        ),
        SLEEPS,
    ),
    HoldWay("pause, abort", "/pause?mode=abort", (("/resume", None),), PAUSES),
    HoldWay("pause, wait", "/pause?mode=wait", (("/resume", None),), PAUSES, keeps=True),
    HoldWay("pause, keep", "/pause?mode=keep", (("/resume", None),), PAUSES, keeps=True),
)


class Holder:
    """Suspends a server in every way; sends it the same requests before, meanwhile and after."""

    def __init__(
        self,
        endpoint: Endpoint,
        bodies: Sequence[Mapping[str, Any]],
        long: Mapping[str, Any],
        answer_s: float,
    ) -> None:
        """`long` is a request whose answer lasts; `answer_s` is how long any answer may take."""
        self._endpoint = endpoint
        self._bodies = bodies
        self._long = {**long, "ignore_eos": True, "stream": True}
        self._client = CompletionClient(endpoint, answer_s)
        self._cannot_read = ""
        """Why the server cannot read its weights again, once that was tried."""

    def hold(self, hold: HoldWay) -> Held:
        """Suspend the server in one way while a request waits, resume it, and send the questions.

        A sleep that loses the weights is not tried if the server cannot read them again.
        """
        if self._cannot_read and (RPC, READ_WEIGHTS) in hold.end:
            return Held(hold.name, self._cannot_read)
        if hold.begin and (refused := self._call("POST", hold.begin)):
            self._go_on(hold)  # a failure half-way may have paused it
            return Held(hold.name, refused)
        with ThreadPoolExecutor(1) as pool:
            waiting: Future[Completion] | None = None
            held, health, early = None, None, False
            if hold.begin:
                held, health = self._state(hold.state), self._health()
                waiting = pool.submit(self._client.ask, self._bodies[0])
                time.sleep(HELD_S)
                early = waiting.done()
            wrong = self._go_on(hold)
            if wrong and not hold.begin:
                self._cannot_read = wrong
                return Held(hold.name, wrong)
            after = self._state(hold.state) if hold.begin else None
            waited = waiting.result() if waiting else None
        answers = tuple(self._client.ask(body) for body in self._bodies)
        return Held(hold.name, "", wrong, health, held, after, early, waited, answers)

    def over(self, hold: HoldWay, whole: Completion) -> OpenOverHold | None:
        """Suspend the server while a long answer is open; None if it does not offer that way.

        `whole` is that answer without an interruption.
        """
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self._client.ask, self._long)
            self._wait_until_begun(answer)
            refused = self._call("POST", hold.begin)  # `wait` replies once the answer has ended
            time.sleep(HELD_S)
            self._go_on(hold)
            ended = answer.result()
        return None if refused else OpenOverHold(hold.name, hold.keeps, whole, ended)

    def whole(self) -> Completion:
        """Return the long answer without an interruption."""
        return self._client.ask(self._long)

    def _go_on(self, hold: HoldWay) -> str:
        """Resume a server; return why it fails, '' if it works."""
        calls = [self._call("POST", path, body) for path, body in hold.end]
        return next(filter(None, calls), "")

    def _wait_until_begun(self, answer: Future[Completion]) -> None:
        """Wait until an answer has begun, or is over."""
        deadline = time.monotonic() + BEGIN_S
        with Metrics(self._endpoint) as metrics:
            while not answer.done() and time.monotonic() < deadline:
                if metrics.load().running:
                    return
                time.sleep(LOOK_S)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> str:
        """Return the error of a route, in its words; '' if it succeeded."""
        try:
            with http.client(self._endpoint) as client:
                reply = client.request(method, path, json=body, timeout=CALL_S)
        except httpx.HTTPError as error:
            return f"{path}: {type(error).__name__}: {error}"
        return "" if reply.is_success else f"{path}: {reply.status_code} {reply.text[:WORDS]}"

    def _state(self, path: str) -> bool | None:
        """Return the one fact that a route reports; None if it reports none."""
        try:
            with http.client(self._endpoint) as client:
                reply = client.get(path, timeout=CALL_S)
            told = reply.json() if reply.is_success else None
        except (httpx.HTTPError, ValueError):
            return None
        values = [*told.values()] if isinstance(told, dict) else []
        return bool(values[0]) if len(values) == 1 else None

    def _health(self) -> int | None:
        try:
            with http.client(self._endpoint) as client:
                return client.get("/health", timeout=CALL_S).status_code
        except httpx.HTTPError:
            return None
