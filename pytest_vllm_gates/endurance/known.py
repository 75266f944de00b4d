"""The questions whose first answers are recorded, and the pictures that agents show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.questions import question
from pytest_vllm_gates.vision import cases, encodings, questions as picture_questions
from pytest_vllm_gates.vision.types import COLOURS, Scene

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.completion import Completion, CompletionClient
    from pytest_vllm_gates.client.questions import Questions

CONVERSATIONS = ("thinking-on", "tool-one", "tool-parallel", "tool-result", "json", "system")
"""Sent beside the questions; they think, call tools, read results and write JSON."""
PICTURE = "picture "
"""The beginning of the name of each question about a picture."""
LEAST_BRIGHT, MOST_BRIGHT = 215, 255
LEAST_SHARE, MOST_SHARE = 0.35, 0.8


@dataclass(frozen=True)
class KnownAnswer:
    """A question, and the server's first answer to it."""

    name: str
    body: Mapping[str, Any]
    answer: Completion


def asked(
    family: Family,
    plan: Questions,
    conversations: Iterable[Conversation],
    adapters: Sequence[str],
    answer_tokens: int,
) -> dict[str, dict[str, Any]]:
    """Return the requests by name: questions, to each adapter too, conversations and pictures.

    `answer_tokens` is how long the answer in a conversation may be.
    """
    bodies = {
        f"question {number}": question(family, text, plan.answer_tokens)
        for number, text in enumerate(plan.questions, 1)
    }
    for adapter in adapters:
        bodies |= {
            f"{name}, {adapter}": {**body, "model": adapter}
            for name, body in bodies.items()
            if "model" not in body
        }
    for conversation in conversations:
        if conversation.name in CONVERSATIONS and not conversation.why_not(family):
            body = {**conversation.body(family), "max_tokens": answer_tokens}
            bodies[f"conversation {conversation.name}"] = body
    if family.vision:
        bodies |= {
            f"{PICTURE}{case.name}": {
                **case.body(encodings.png_url),
                "max_tokens": plan.answer_tokens,
            }
            for case in cases.SEEN
        }
    return bodies


def taken(client: CompletionClient, bodies: Mapping[str, Mapping[str, Any]]) -> list[KnownAnswer]:
    """Send everything once. Unanswered requests are left out: other gates judge them at any time.

    The first request is always kept: a server that does not answer it gets no more requests.
    """
    known: list[KnownAnswer] = []
    for name, body in bodies.items():
        answer = client.ask(body)
        if known and answer.error:
            continue
        known.append(KnownAnswer(name, body, answer))
        if answer.error:
            break
    return known


def picture(chance: random.Random) -> dict[str, Any]:
    """Return the part of a message that contains a square, drawn anew each time."""
    scene = Scene(
        "colour",
        (chance.choice([*COLOURS]),),
        share=chance.uniform(LEAST_SHARE, MOST_SHARE),
        background=chance.randint(LEAST_BRIGHT, MOST_BRIGHT),
    )
    return picture_questions.image(encodings.png_url(scene))
