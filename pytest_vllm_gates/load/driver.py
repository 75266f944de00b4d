"""Puts a server under its planned load, watches it, and sends probes meanwhile."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx2 as httpx

from pytest_vllm_gates.load.generator.measure import measure
from pytest_vllm_gates.load.generator.parse import answered
from pytest_vllm_gates.load.probes import probing
from pytest_vllm_gates.load.ramp import RampDriver, count
from pytest_vllm_gates.load.requests import Maker, arrivals
from pytest_vllm_gates.load.trace import Arrival, BatchRequest, Replay
from pytest_vllm_gates.load.types import ALONE, LoadResult, Phase, Probe, Schedule, SoakBlock
from pytest_vllm_gates.process.process import resident_bytes
from pytest_vllm_gates.server.watchdog import LOOK_S, RestState, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.plans import Traffic
    from pytest_vllm_gates.client.completion import Completion
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.client.questions import Questions
    from pytest_vllm_gates.load.probes import Probes
    from pytest_vllm_gates.load.ramp import Judge
    from pytest_vllm_gates.load.requests import Requests
    from pytest_vllm_gates.load.trace import TraceSelection
    from pytest_vllm_gates.load.types import RampStep, Workers
    from pytest_vllm_gates.server.metrics import Load, Metrics
    from pytest_vllm_gates.server.watchdog import Hang, Watchdog

STREAMS, ARRIVALS, TRACE, CROWD, RAMP = "streams", "arrivals", "trace", "crowd", "ramp"
REST_S = 15.0
ALIKE = 2
"""The number of equal readings in a row after which a server's counters count as settled."""
BLOCKS = 20
LEAST_BLOCK_S = 2.0
SPARE = 4.0
"""The requests that are prepared for a block, as a multiple of the expected number."""


@dataclass
class LoadTarget:
    """A server, its planned load, and the means to watch it."""

    endpoint: Endpoint
    family: Family
    traffic: Traffic
    text: Sequence[int]
    """Token ids for prompts."""
    questions: Questions
    metrics: Metrics | None
    canary: Callable[[], Completion]
    """Sends a short question."""
    stall_s: float
    """How long there may be no progress while requests are in flight."""
    answer_s: float
    """How long an answer to a question may take."""
    processes: Callable[[], Sequence[int]] = list
    folder: Path | None = None
    """The file for the stacks of a hanging server."""
    soak_s: float = 0.0
    """How long the streams are kept up at the end."""
    workers: Workers = ALONE
    """The processes that share the sending."""
    trace: TraceSelection | None = None
    """The trace to replay instead of generated arrivals."""
    context: int = 0
    """The server's context in tokens; only a trace needs it."""
    ramp: Judge | None = None
    """Returns the limit that a rate exceeded; required for a ramp."""
    progress: Callable[[str], None] = lambda _: None

    def load(self) -> LoadResult:
        """Drive every phase, until the server does not come back."""
        self.canary()  # the next one finds a warm prefix, as all later ones do
        healthy = self.canary()
        if healthy.error:
            return LoadResult(healthy, (), (), None)
        maker = Maker(self.endpoint, self.traffic, self.text)
        phases: list[Phase] = []
        probes: list[Probe] = []
        replay: Replay | None = None
        names = (STREAMS, TRACE if self.trace else ARRIVALS, CROWD)
        for number, name in enumerate(names, 1):
            self.progress(f"{self.family.name}: load, {name} ({number} of {len(names)})")
            if name == ARRIVALS:
                phase = self._arrivals(name, maker, self._rate(phases[0]))
            elif name == TRACE and self.trace:
                phase, replay = self._replay(maker, self.trace, self._rate(phases[0]))
            else:
                requests = maker.make(name, [None] * self.traffic.requests)
                if name == CROWD:
                    with self._probing(probes):
                        phase = self._phase(name, requests, self.traffic.concurrency)
                else:
                    phase = self._phase(name, requests, self.traffic.concurrency)
            phases.append(phase)
            if phase.hang or not any(not answer.error for answer in phase.answers):
                break
        broken = bool(phases[-1].hang)
        soak = () if broken or not self.soak_s else tuple(self._soak(maker, phases[0]))
        ramp = () if broken or not self.ramp else self._ramp(maker, self.ramp, phases[0])
        broken = broken or any(step.phase.hang for step in ramp)
        idle = None if broken else self._idle_state()
        return LoadResult(healthy, tuple(phases), tuple(probes), idle, soak, ramp, replay)

    def _arrivals(self, name: str, maker: Maker, rate: float) -> Phase:
        plan = self.traffic
        many = max(1, min(plan.requests, int(rate * plan.seconds)))
        times = arrivals(plan.process, rate, many, name)
        return self._phase(name, maker.make(name, times), None, (plan.process, rate))

    def _replay(self, maker: Maker, trace: TraceSelection, rate: float) -> tuple[Phase, Replay]:
        """Send a trace's requests: at its own times, or at the planned rate where it has none."""
        plan, cut = self.traffic, 0
        timed = [record for record in trace.entries if isinstance(record, Arrival)]
        batch = [record for record in trace.entries if isinstance(record, BatchRequest)]
        if timed:
            requests, cut = maker.replay(TRACE, timed, self.context)
            process: tuple[str, float | None] = (TRACE, None)
        else:
            many = max(1, min(len(batch), int(rate * plan.seconds)))
            times = arrivals(plan.process, rate, many, TRACE)
            requests, process = maker.from_batch(batch, times), (plan.process, rate)
        phase = self._phase(TRACE, requests, None, process)
        speed = plan.trace_speed if timed else None
        sent = len(phase.answers)
        return phase, Replay(trace.file, trace.format, sent, trace.left_out, cut, speed)

    def _ramp(self, maker: Maker, limit: Judge, streams: Phase) -> tuple[RampStep, ...]:
        """Offer ever higher rates until the server does not keep one."""
        plan = self.traffic

        def drive(rate: float) -> Phase:
            name = f"{RAMP}, {rate:.4g} a second"
            times = arrivals(plan.process, rate, count(rate, plan.ramp), RAMP)
            requests = maker.make(name, times)
            return self._phase(name, requests, None, (plan.process, rate), seconds=math.inf)

        def progress(step: RampStep) -> None:
            outcome = f"not kept: {step.limit.why}" if step.limit else "kept"
            self.progress(f"{self.family.name}: ramp, {step.rate:.4g} requests a second {outcome}")

        share = plan.ramp.start_share * len(streams.answers) / streams.took_s
        return RampDriver(plan.ramp, drive, limit, progress).climb(plan.rate or share)

    def _soak(self, maker: Maker, streams: Phase) -> Iterator[SoakBlock]:
        """Keep the streams up, block by block; the answers are read after each and not kept."""
        seconds = max(self.soak_s / BLOCKS, LEAST_BLOCK_S)
        enough = int(SPARE * seconds * len(streams.answers) / streams.took_s) + 1
        begun = time.monotonic()
        for number in itertools.count():
            at_s = time.monotonic() - begun
            if at_s >= self.soak_s:
                return
            requests = maker.make(f"soak-{number}", [None] * (enough + self.traffic.concurrency))
            driven = measure(
                self.endpoint, requests.planned, self.traffic.concurrency,
                silence_s=self.stall_s, seconds=seconds, workers=self.workers,
            )  # fmt: skip
            answers = [answered(raw) for raw in driven.raws]
            errors = [answer.error for answer in answers if answer.error]
            rate = sum(answer.output_tokens for answer in answers) / driven.took_s
            self.progress(
                f"{self.family.name}: soak, {at_s + driven.took_s:.0f} of {self.soak_s:.0f} s, "
                f"{rate:.0f} tokens/s, {len(errors)} of {len(answers)} requests failed"
            )
            yield SoakBlock(
                at_s,
                len(answers),
                len(errors),
                errors[0] if errors else "",
                rate,
                resident_bytes(self.processes()),
            )
            if len(errors) == len(answers):
                return

    def _rate(self, streams: Phase) -> float:
        return self.traffic.rate or self.traffic.rate_share * len(streams.answers) / streams.took_s

    def _probing(self, probes: list[Probe]) -> Probes:
        return probing(self.endpoint, self.family, self.questions, self.answer_s, probes)

    def _phase(
        self,
        name: str,
        requests: Requests,
        users: int | None,
        process: tuple[str, float | None] | None = None,
        *,
        seconds: float | None = None,
    ) -> Phase:
        """Drive one kind of load.

        `process`: how requests follow one another, and the planned rate; `seconds`: when
        to stop sending more, where that is not as planned.
        """
        alone = name != CROWD
        before = self._figures() if alone else None
        with Watch(self.metrics, self.stall_s + _quiet_s(requests), self._hang) as watch:
            driven = measure(
                self.endpoint, requests.planned, users,
                silence_s=self.stall_s,
                seconds=self.traffic.seconds if seconds is None else seconds,
                workers=self.workers,
            )  # fmt: skip
        raws = sorted(driven.raws, key=lambda raw: raw.intended_s)
        return Phase(
            name,
            alone,
            users,
            requests.expected,
            tuple(answered(raw) for raw in driven.raws),
            driven.took_s,
            tuple(
                raw.dispatched_s - raw.intended_s for raw in raws if raw.dispatched_s is not None
            ),
            before,
            self._figures() if alone and not watch.hang else None,
            tuple(watch.seen),
            watch.hang,
            process
            and Schedule(
                *process,
                tuple(raw.intended_s for raw in raws),
                tuple(raw.dispatched_s for raw in raws),
            ),
        )

    def _hang(self, watchdog: Watchdog) -> Hang:
        return watchdog.hang(self.endpoint, self.processes(), self.folder)

    def _figures(self) -> Load | None:
        """Return the server's figures once they have settled; None if it has none."""
        deadline = time.monotonic() + REST_S
        figures: Load | None = None
        alike = 0
        while self.metrics is not None and alike < ALIKE and time.monotonic() < deadline:
            try:
                now = self.metrics.load()
            except httpx.HTTPError:
                return None
            at_rest = figures is not None and now.progress == figures.progress and not now.in_flight
            alike = alike + 1 if at_rest else 0
            figures = now
            time.sleep(LOOK_S)
        return figures

    def _idle_state(self) -> RestState:
        load = self._figures()
        completion = self.canary()
        return RestState(
            completion,
            load.in_flight if load else None,
            round(load.kv_usage, 4) if load else None,
            resident_bytes(self.processes()),
        )


def _quiet_s(requests: Requests) -> float:
    """Return the longest time for which no request is scheduled."""
    times = [0.0, *(request.at_s for request in requests.planned if request.at_s is not None)]
    return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)
