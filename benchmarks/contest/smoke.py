"""The two checks that most deployments have: `/health`, and one prompt with a known answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2 as httpx

from benchmarks.contest.asking import MAX_TOKENS, TIMEOUT_S, Asker

if TYPE_CHECKING:
    from benchmarks.contest.types import Target

PROMPT = "What is the capital of France?"
ANSWER = "paris"


def health(target: Target) -> tuple[bool, str]:
    """Return whether `/health` does not answer 200, as a load balancer's probe would see it."""
    try:
        status = httpx.get(f"{target.root_url}/health", timeout=TIMEOUT_S).status_code
    except httpx.HTTPError as error:
        return True, type(error).__name__
    return status != httpx.codes.OK, f"status {status}"


def smoke(asker: Asker) -> tuple[bool, str]:
    """Return whether one prompt's content does not name the city that it is asked for.

    It allows as many tokens as the golden answers do: the faults of `tests/faults` leave chats of
    less than 100 tokens as they are, because each boot of a server sends one.
    """
    body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": MAX_TOKENS}
    reply = asker.ask({**body, "temperature": 0})
    return ANSWER not in reply.content.lower(), repr((reply.content or reply.text)[:80])
