"""Do a call's arguments arrive as the model wrote them, however awkward their texts or types?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.conversations.checks.agreement import differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.facts.reply import Reply

SHOWN = 100


def altered(reply: Reply) -> Iterator[str]:
    """Yield what is wrong with the call that came of a forced reply."""
    if reply.exact:
        calls = reply.whole.tool_calls
        if len(calls) != 1:
            yield f"whole: one call was written and {len(calls)} came"
        else:
            yield from _altered(_values(calls[0].arguments), reply.arguments)
    for sentence in differences(reply.whole, reply.streamed):
        yield f"streamed: {sentence}"
    for sentence in differences(reply.whole, reply.widened, ("whole", "wide")):
        yield f"wide: {sentence}"


def _altered(came: dict[str, Any], written: Any) -> Iterator[str]:
    for name, value in written.items():
        if name not in came:
            yield f"whole: {name} is missing, written was {_shown(value)}"
        elif not _same(came[name], value):
            yield f"whole: {name} is {_shown(came[name])}, written was {_shown(value)}"
    for name in came.keys() - written.keys():
        yield f"whole: {name} was not written, and is {_shown(came[name])}"


def _values(arguments: str) -> dict[str, Any]:
    """Return a call's arguments; none where they are no object."""
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _same(came: Any, written: Any) -> bool:
    """Return whether two JSON values are one: 1 is 1.0, and neither is true."""
    if isinstance(written, dict) and isinstance(came, dict):
        return came.keys() == written.keys() and all(
            _same(came[name], value) for name, value in written.items()
        )
    if isinstance(written, list) and isinstance(came, list):
        return len(came) == len(written) and all(map(_same, came, written))
    if isinstance(written, bool) or isinstance(came, bool):
        return came is written
    return bool(came == written)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= SHOWN else f"{value[:SHOWN]}… ({len(value)} characters)")
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "something deeply nested"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
