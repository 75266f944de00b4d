"""Do a call's arguments arrive as the model wrote them, however awkward the text?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_vllm_gates.judge.agreement import differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.facts.reply import Reply

SHOWN = 100


def judge_reply(reply: Reply) -> Iterator[str]:
    """Yield what is wrong with the call that came of a forced reply."""
    if reply.exact:
        calls = reply.whole.tool_calls
        if len(calls) != 1:
            yield f"whole: one call was written and {len(calls)} came"
        elif (came := _text(calls[0].arguments)) != reply.text:
            yield f"whole: text is {_shown(came)}, written was {_shown(reply.text)}"
    for sentence in differences(reply.whole, reply.streamed):
        yield f"streamed: {sentence}"
    for sentence in differences(reply.whole, reply.widened, ("whole", "wide")):
        yield f"wide: {sentence}"


def _text(arguments: str) -> str | None:
    try:
        text = json.loads(arguments)["text"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return text if isinstance(text, str) else None


def _shown(text: str | None) -> str:
    if text is None:
        return "missing"
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)")
