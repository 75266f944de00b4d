"""Does any of the wire format reach a client's fields?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.answer import Exchange
    from pytest_vllm_gates.facts.answer import Answer

AROUND = 30


def markers(exchange: Exchange, family: Family) -> Iterator[str]:
    """Yield a sentence for every marker or special token in a field of the whole answer.

    A marker that the request itself quotes may come back.
    """
    if exchange.whole is None:
        return
    asked = json.dumps(exchange.request, ensure_ascii=False)
    for field, text in fields(exchange.whole):
        for marker in family.markers:
            if marker and marker in text and marker not in asked:
                at = text.index(marker)
                shown = text[max(0, at - AROUND) : at + len(marker) + AROUND]
                yield f"{field} holds the marker {marker!r}: …{shown!r}…"


def fields(answer: Answer) -> Iterator[tuple[str, str]]:
    """Yield every text a client reads, with the field's name."""
    yield "reasoning", answer.reasoning
    yield "content", answer.content
    for index, call in enumerate(answer.tool_calls):
        yield f"tool_calls[{index}].name", call.name
        yield f"tool_calls[{index}].arguments", call.arguments
