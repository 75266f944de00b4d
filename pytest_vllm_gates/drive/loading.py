"""Puts a server under its planned load, looks after it, and asks along with everybody else."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import httpx2 as httpx

from pytest_vllm_gates.drive.ladder import resident_bytes
from pytest_vllm_gates.drive.measuring.answers import answered
from pytest_vllm_gates.drive.measuring.measure import measure
from pytest_vllm_gates.drive.saying import Saying
from pytest_vllm_gates.drive.tickets import question, ticket
from pytest_vllm_gates.drive.traffic import Maker, poisson
from pytest_vllm_gates.drive.watchdog import Watchdog
from pytest_vllm_gates.facts.ladder import Rest
from pytest_vllm_gates.facts.loaded import Block, Loaded, Phase, Ride
from pytest_vllm_gates.facts.timing import ALONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pytest_vllm_gates.drive.metrics import Metrics
    from pytest_vllm_gates.drive.traffic import Requests
    from pytest_vllm_gates.facts.family import Family
    from pytest_vllm_gates.facts.isolation import Questions
    from pytest_vllm_gates.facts.ladder import Hang
    from pytest_vllm_gates.facts.launch import Endpoint
    from pytest_vllm_gates.facts.load import Load
    from pytest_vllm_gates.facts.said import Said
    from pytest_vllm_gates.facts.timing import Workers
    from pytest_vllm_gates.facts.traffic import Traffic

STREAMS, ARRIVALS, CROWD = "streams", "arrivals", "crowd"
LOOK_S = 0.1
REST_S = 15.0
ALIKE = 2
"""Equal looks in a row after which a server's counters have come to rest."""
TICKETS = 2
"""So many people ask for tickets at the same time."""


BLOCKS = 20
LEAST_BLOCK_S = 2.0
SPARE = 4.0
"""So many times the requests are made ready for a block that should be needed."""


class Watch:
    """Looks at the server from a thread of its own while its `with` block lasts."""

    def __init__(self, loader: Loader, quiet_s: float) -> None:
        """`quiet_s`: how long nobody may ask anything, so that nothing need move."""
        self._loader = loader
        self._quiet_s = quiet_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.seen: list[Load] = []
        self.hang: Hang | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        loader = self._loader
        watchdog = Watchdog(loader.metrics)
        while not self._over.wait(LOOK_S):
            silent_s = watchdog.silent_s()
            if watchdog.last is not None and watchdog.last not in self.seen[-1:]:
                self.seen.append(watchdog.last)
            told = watchdog.last is not None
            if told and silent_s > loader.stall_s + self._quiet_s and not self.hang:
                self.hang = watchdog.hang(loader.endpoint, loader.processes(), loader.folder)


@dataclass
class Loader:
    """A server, what it is to be put through, and what is needed to look after it."""

    endpoint: Endpoint
    family: Family
    traffic: Traffic
    text: Sequence[int]
    """Token ids to cut prompts from."""
    questions: Questions
    metrics: Metrics | None
    canary: Callable[[], Said]
    """Asks a short question."""
    stall_s: float
    """How long nothing may move while requests are in flight."""
    answer_s: float
    """How long an answer to a question may take."""
    processes: Callable[[], Sequence[int]] = list
    folder: Path | None = None
    """Where the stacks of a hanging server are written."""
    soak_s: float = 0.0
    """How long the streams are kept up at the end."""
    workers: Workers = ALONE
    """Who shares the sending."""
    progress: Callable[[str], None] = lambda _: None

    def load(self) -> Loaded:
        """Drive every phase, until the server does not come back."""
        self.canary()  # the next one finds a warm prefix, as all that follow do
        healthy = self.canary()
        if healthy.error:
            return Loaded(healthy, (), (), None)
        maker = Maker(self.endpoint, self.traffic, self.text)
        phases: list[Phase] = []
        rides: list[Ride] = []
        for name in (STREAMS, ARRIVALS, CROWD):
            if name == ARRIVALS:
                rate = self._rate(phases[0])
                count = max(1, min(self.traffic.requests, int(rate * self.traffic.seconds)))
                phase = self._phase(name, maker.make(name, poisson(rate, count, name)), None)
            else:
                requests = maker.make(name, [None] * self.traffic.requests)
                if name == CROWD:
                    with self._riding(rides):
                        phase = self._phase(name, requests, self.traffic.concurrency)
                else:
                    phase = self._phase(name, requests, self.traffic.concurrency)
            phases.append(phase)
            if phase.hang or not any(not one.error for one in phase.answers):
                break
        broken = bool(phases[-1].hang)
        soak = () if broken or not self.soak_s else tuple(self._soak(maker, phases[0]))
        rest = None if broken else self._rest()
        return Loaded(healthy, tuple(phases), tuple(rides), rest, soak)

    def _soak(self, maker: Maker, streams: Phase) -> Iterator[Block]:
        """Keep the streams up, block by block; what came is read after each and not kept."""
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
            errors = [one.error for one in answers if one.error]
            rate = sum(one.output_tokens for one in answers) / driven.took_s
            self.progress(
                f"{self.family.name}: soak, {at_s + driven.took_s:.0f} of {self.soak_s:.0f} s, "
                f"{rate:.0f} tokens/s, {len(errors)} of {len(answers)} requests failed"
            )
            yield Block(
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

    def _phase(self, name: str, requests: Requests, users: int | None) -> Phase:
        alone = name != CROWD
        before = self._figures() if alone else None
        with Watch(self, _quiet_s(requests)) as watch:
            driven = measure(
                self.endpoint, requests.planned, users,
                silence_s=self.stall_s, seconds=self.traffic.seconds, workers=self.workers,
            )  # fmt: skip
        return Phase(
            name,
            alone,
            users,
            requests.asked,
            tuple(answered(raw) for raw in driven.raws),
            driven.took_s,
            tuple(raw.sent_s - raw.intended_s for raw in driven.raws if raw.sent_s is not None),
            before,
            self._figures() if alone and not watch.hang else None,
            tuple(watch.seen),
            watch.hang,
        )

    def _figures(self) -> Load | None:
        """Return the server's figures once they have come to rest; None where it tells none."""
        deadline = time.monotonic() + REST_S
        found: Load | None = None
        alike = 0
        while self.metrics is not None and alike < ALIKE and time.monotonic() < deadline:
            try:
                now = self.metrics.load()
            except httpx.HTTPError:
                return None
            at_rest = found is not None and now.progress == found.progress and not now.in_flight
            alike = alike + 1 if at_rest else 0
            found = now
            time.sleep(LOOK_S)
        return found

    def _rest(self) -> Rest:
        load = self._figures()
        said = self.canary()
        return Rest(
            said,
            load.in_flight if load else None,
            round(load.kv_usage, 4) if load else None,
            resident_bytes(self.processes()),
        )

    def _riding(self, rides: list[Ride]) -> _Riding:
        saying = Saying(self.endpoint, self.answer_s)
        tokens = self.questions.answer_tokens
        asks = [question(self.family, one, tokens) for one in self.questions.questions]
        alone = [saying.ask(body) for body in asks]
        beginning = self.questions.filler

        def questions(over: threading.Event) -> Iterator[Ride]:
            for number in itertools.cycle(range(len(asks))):
                if over.is_set():
                    return
                said = saying.ask(asks[number])
                yield Ride(self.questions.questions[number], alone[number], None, said)

        def tickets(over: threading.Event) -> Iterator[Ride]:
            for number in itertools.count():
                if over.is_set():
                    return
                nonce = secrets.token_hex(4)
                streamed = bool(number % 2)
                said = saying.ask(ticket(self.family, beginning, nonce, streamed=streamed))
                yield Ride(f"ticket, {'streamed' if streamed else 'whole'}", None, nonce, said)

        return _Riding(rides, [questions, *[tickets] * TICKETS])


def _quiet_s(requests: Requests) -> float:
    """Return the longest time for which no request goes out, because none is to."""
    times = [0.0, *(one.at_s for one in requests.planned if one.at_s is not None)]
    return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)


class _Riding:
    """Asks from threads of their own while its `with` block lasts."""

    def __init__(
        self, rides: list[Ride], riders: Sequence[Callable[[threading.Event], Iterator[Ride]]]
    ) -> None:
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=lambda one=rider: rides.extend(one(self._over)), daemon=True)
            for rider in riders
        ]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
