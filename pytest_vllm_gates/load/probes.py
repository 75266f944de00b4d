"""Asks along while a load is on: questions whose answers are known, and tickets."""

from __future__ import annotations

import itertools
import secrets
import threading
from typing import TYPE_CHECKING

from pytest_vllm_gates.client.completion import CompletionClient
from pytest_vllm_gates.client.questions import question, ticket
from pytest_vllm_gates.load.types import Probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.client.questions import Questions

TICKETS = 2
"""So many people ask for tickets at the same time."""


def riding(
    endpoint: Endpoint, family: Family, given: Questions, answer_s: float, rides: list[Probe]
) -> Probes:
    """Return who asks along, once the questions have been asked alone; answers go into `rides`.

    `answer_s`: how long an answer may take.
    """
    saying = CompletionClient(endpoint, answer_s)
    asks = [question(family, text, given.answer_tokens) for text in given.questions]
    alone = [saying.ask(body) for body in asks]

    def questions(over: threading.Event) -> Iterator[Probe]:
        for number in itertools.cycle(range(len(asks))):
            if over.is_set():
                return
            completion = saying.ask(asks[number])
            yield Probe(given.questions[number], alone[number], None, completion)

    def tickets(over: threading.Event) -> Iterator[Probe]:
        for number in itertools.count():
            if over.is_set():
                return
            nonce = secrets.token_hex(4)
            streamed = bool(number % 2)
            completion = saying.ask(ticket(family, given.filler, nonce, streamed=streamed))
            yield Probe(f"ticket, {'streamed' if streamed else 'whole'}", None, nonce, completion)

    return Probes(rides, [questions, *[tickets] * TICKETS])


class Probes:
    """Asks from threads of their own while its `with` block lasts."""

    def __init__(
        self, rides: list[Probe], riders: Sequence[Callable[[threading.Event], Iterator[Probe]]]
    ) -> None:
        self._over = threading.Event()
        self._threads = [
            threading.Thread(
                target=lambda entry=rider: rides.extend(entry(self._over)), daemon=True
            )
            for rider in riders
        ]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
