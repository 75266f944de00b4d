"""Golden answers: the greedy answers of a clean server, recorded and compared as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import openai

from benchmarks.contest.asking import ADAPTER_QUESTIONS, Asker, family_of, questions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.contest.types import Reply


REFUSED = "error"


def ask(asker: Asker) -> dict[str, Reply]:
    """Ask every question of the base model, and some of each adapter that is listed."""
    bodies = questions(family_of(asker.target))
    replies = asker.ask_all(bodies)
    try:
        adapters = asker.adapters()
    except openai.OpenAIError:
        return replies
    plain = [*bodies.items()][:ADAPTER_QUESTIONS]
    for number, adapter in enumerate(adapters):
        for name, body in plain:
            replies[f"{name} of adapter {number}"] = asker.ask(body, adapter)
    return replies


def judge(replies: Mapping[str, Reply], recorded: Mapping[str, Reply]) -> tuple[bool, str]:
    """Return whether a text is not the recorded one, and the first such.

    A question that the clean server refused has no golden answer.
    """
    for name, reply in recorded.items():
        if reply.finish_reason == REFUSED:
            continue
        if name not in replies:
            return True, f"{name}: not answered"
        if replies[name].text != reply.text:
            return True, f"{name}: {replies[name].text[:80]!r}, recorded {reply.text[:80]!r}"
    return False, ""
