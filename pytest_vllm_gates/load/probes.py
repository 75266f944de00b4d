"""Probes during a load: questions with known answers, and tickets."""

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
"""Threads that send tickets concurrently."""


def probing(
    endpoint: Endpoint, family: Family, questions: Questions, answer_s: float, probes: list[Probe]
) -> Probes:
    """Return the probes of a load, after sending their questions once without load.

    `probes`: the list that receives the answers; `answer_s`: the time limit of one.
    """
    client = CompletionClient(endpoint, answer_s)
    bodies = [
        question(family, question_text, questions.answer_tokens)
        for question_text in questions.questions
    ]
    alone = [client.ask(body) for body in bodies]

    def ask_questions(over: threading.Event) -> Iterator[Probe]:
        for number in itertools.cycle(range(len(bodies))):
            if over.is_set():
                return
            completion = client.ask(bodies[number])
            yield Probe(questions.questions[number], alone[number], None, completion)

    def ask_tickets(over: threading.Event) -> Iterator[Probe]:
        for number in itertools.count():
            if over.is_set():
                return
            nonce = secrets.token_hex(4)
            streamed = bool(number % 2)
            completion = client.ask(ticket(family, questions.filler, nonce, streamed=streamed))
            yield Probe(f"ticket, {'streamed' if streamed else 'whole'}", None, nonce, completion)

    return Probes(probes, [ask_questions, *[ask_tickets] * TICKETS])


class Probes:
    """Sends probes from separate threads while its `with` block lasts."""

    def __init__(
        self, probes: list[Probe], askers: Sequence[Callable[[threading.Event], Iterator[Probe]]]
    ) -> None:
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=lambda ask=asker: probes.extend(ask(self._over)), daemon=True)
            for asker in askers
        ]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
