"""Boots a family in development mode, pauses it in every way, cancels requests, ends its engine."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.questions import question
from pytest_vllm_gates.isolation import cancel
from pytest_vllm_gates.lifecycle import holds, stop
from pytest_vllm_gates.outcomes import NotApplicable
from pytest_vllm_gates.robustness.client import ANSWER_LIMIT_S
from pytest_vllm_gates.server import log
from pytest_vllm_gates.server.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.isolation.cancel import CancelResult
    from pytest_vllm_gates.lifecycle.types import Held, OpenOverHold, StoppedServer
    from pytest_vllm_gates.session.against.replicas import Replicas
    from pytest_vllm_gates.session.launch import Launch

STORY = "Tell me a long story about a lighthouse."
HELD_QUESTIONS = 4
"""The number of questions after each pause."""
IGNORED = ("sleep mode is not supported",)
"""vLLM's log lines if its worker ignores sleep (0.32, `v1/worker/cpu_worker.py`)."""
REFUSED = ("Sleep mode is not supported", "cumem allocator is not supported")
"""vLLM's errors if it refuses to boot with `--enable-sleep-mode` (0.32, `config/model.py`)."""


@dataclass(frozen=True)
class HeldBoot:
    """The result of the boot."""

    launch: Launch
    holds: Sequence[Held] = ()
    over: Sequence[OpenOverHold] = ()
    ignored: str = ""
    """vLLM's own words if it frees no memory in sleep mode."""
    left: CancelResult | None = None
    """The result for requests whose clients disconnected; None if it cannot be observed."""
    engine_ended: StoppedServer | None = None
    """The result for the server when its engine was ended; None if no engine was found."""


@dataclass
class HeldBooting:
    """The paused boot of one family, made at its first use."""

    replicas: Replicas
    _made: HeldBoot | None = None

    def made(self) -> HeldBoot:
        """Return the result; the run's own server ends before it."""
        if self._made is None:
            self.replicas.end_the_own()
            self._made = self._boot()
        return self._made

    def _boot(self) -> HeldBoot:
        replicas = self.replicas
        # Without a GPU vLLM refuses it: "Sleep mode is not supported on current platform."
        sleeps = {"enable_sleep_mode": True} if replicas.run.machine.gpus else {}
        title = "paused in every way, its engine ended"
        launch = replicas.boot("held", title, serve=sleeps, env=holds.DEVELOPMENT)
        refused = _words(launch, REFUSED)
        if sleeps and refused and not launch.ok:
            launch = replicas.boot("held-awake", title, env=holds.DEVELOPMENT)
        try:
            if not launch.ok:
                return HeldBoot(launch)
            endpoint = launch.endpoint()
            story = question(replicas.subject.family, STORY, stop.TOKENS)
            bodies = replicas.bodies[:HELD_QUESTIONS]
            holder = holds.Holder(endpoint, bodies, story, ANSWER_LIMIT_S)
            held = [holder.hold(hold) for hold in holds.HOLDS]
            offered = {each.name for each in held if not each.refused and not each.stuck}
            whole = holder.whole()
            pauses = [hold for hold in holds.HOLDS if hold.state == holds.PAUSES]
            over = [holder.over(hold, whole) for hold in pauses if hold.name in offered]
            left = self._left(endpoint, story)
            ended = self._engine_ended(launch, endpoint, story)
        finally:
            launch.stop()
        return HeldBoot(
            launch,
            held,
            [each for each in over if each],
            refused or _words(launch, IGNORED),
            left,
            ended,
        )

    def _left(self, endpoint: Endpoint, story: dict[str, object]) -> CancelResult | None:
        context = http.context(endpoint, self.replicas.subject.family.context.planned)
        try:
            with Metrics(endpoint) as metrics:
                return cancel.disconnect(endpoint, metrics, story, context, streamed=True)
        except NotApplicable:
            return None

    def _engine_ended(
        self, launch: Launch, endpoint: Endpoint, story: dict[str, object]
    ) -> StoppedServer | None:
        server = launch.stoppable()
        engines = stop.engines(server)
        if not engines or engines[0] == server[0]:
            return None
        return stop.stop(endpoint, story, engines[0], signal.SIGKILL, server[0])


def _words(launch: Launch, words: Sequence[str]) -> str:
    """Return the first line of a boot's log with one of these words; '' if there is none."""
    lines = log.read_from(launch.log).splitlines() if launch.log else []
    return next((line for line in lines if any(word in line for word in words)), "")
