"""Does an answer hold its own nonce, and nobody else's?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.facts.said import Said


def faults(said: Said, nonces: Sequence[str], own: int) -> list[str]:
    """Return what is wrong with the answer to request number `own`, one sentence each."""
    if said.error:
        return [f"no answer: {said.error}"]
    found = [
        f"the answer holds {nonce!r}, which is request {number + 1}'s: {said.shown}"
        for number, nonce in enumerate(nonces)
        if number != own and nonce in said.text
    ]
    if nonces[own] not in said.text:
        found.append(f"the answer does not hold its own {nonces[own]!r}: {said.shown}")
    return found
