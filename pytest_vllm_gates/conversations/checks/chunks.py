"""Checks that the chunks of a stream keep to the conventions that clients rely on.

Sources: https://platform.openai.com/docs/api-reference/chat-streaming for the fields, and
`openai/lib/streaming/_deltas.py` for how the official client assembles deltas: a repeated text is
appended, so a repeated role or id becomes another one.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.untyped import index_key, record, records, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Chunk = dict[str, Any]

SPLIT = re.compile(r"[\ufffd\ud800-\udfff]")
"""Marks of a split character: the replacement character, or half a surrogate pair."""
TEXTS = ("content", "reasoning", "reasoning_content", "refusal")
SPLITS = "a chunk splits a character"
"""The beginning of the sentence about one; a model may also write U+FFFD itself."""
SHOWN = 100
NAMED = 3
FINGERPRINT = "system_fingerprint"


def faults(chunks: Sequence[Chunk], choices: int = 1, *, usage: bool = True) -> Iterator[str]:
    """Yield a sentence for each convention that a stream breaks.

    `choices` is the `n` of its request, `usage` is whether it requested usage.
    """
    yield from dict.fromkeys(_form_faults(chunks))
    by_index = _by_index(chunks)
    if not by_index:
        yield "no chunk has a choice"
        return
    if [*by_index] != [index_key(index) for index in range(choices)]:
        indices = [its_choices[0].get("index", 0) for its_choices in by_index.values()]
        yield f"{choices} choices were requested, and the chunks have the indices {shown(indices)}"
    for its_choices in by_index.values():
        of = f"choice {its_choices[0].get('index', 0)}: " if choices > 1 else ""
        for sentence in _choice_faults(its_choices):
            yield of + sentence
    if usage:
        yield from _usage_faults(chunks)
    yield from _header_faults(chunks)


def unrequested_usage(chunks: Iterable[Chunk]) -> Iterator[str]:
    """Yield a sentence for usage in a stream that did not request it."""
    for chunk in chunks:
        if chunk.get("usage"):
            shown = json.dumps(chunk, ensure_ascii=False)[:SHOWN]
            yield f"stream_options did not request usage, and a chunk has it: {shown}"


def _form_faults(chunks: Iterable[Chunk]) -> Iterator[str]:
    """Yield the parts of a chunk whose form the other checks cannot read."""
    for chunk in chunks:
        choices = chunk.get("choices")
        if not isinstance(choices, list) or len(records(choices)) != len(choices):
            yield f"a chunk's choices are {shown(choices)}"
        for choice in records(choices):
            delta = choice.get("delta")
            if not isinstance(delta, dict | None):
                yield f"a chunk's delta is {shown(delta)}"
            calls = record(delta).get("tool_calls") or []
            if not isinstance(calls, list) or len(records(calls)) != len(calls):
                yield f"a chunk's tool_calls are {shown(calls)}"


def _by_index(chunks: Sequence[Chunk]) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Return the pieces of each choice by the key of its index, in the order of the indices."""
    by_index: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for chunk in chunks:
        for choice in records(chunk.get("choices")):
            by_index.setdefault(index_key(choice.get("index", 0)), []).append(choice)
    return dict(sorted(by_index.items()))


def _choice_faults(choices: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    deltas = [record(choice.get("delta")) for choice in choices]
    role = deltas[0].get("role")
    if role != "assistant":
        yield f"the first chunk's role is {role!r}, not 'assistant'"
    if roles := [delta["role"] for delta in deltas[1:] if delta.get("role")]:
        yield f"the role comes {1 + len(roles)} times, and clients append it"
    finished = [
        number for number, choice in enumerate(choices) if choice.get("finish_reason") is not None
    ]
    if len(finished) != 1:
        reasons = ", ".join(str(choices[number]["finish_reason"]) for number in finished)
        yield f"{len(finished)} chunks have a finish_reason ({reasons or 'none'})"
    elif any(map(_carries, deltas[finished[0] + 1 :])):
        yield "text comes after the chunk with the finish_reason"
    for delta in deltas:
        for name in TEXTS:
            text = delta.get(name)
            if isinstance(text, str) and SPLIT.search(text):
                yield f"{SPLITS}: delta.{name} is {text!r}"
    yield from _call_faults([call for delta in deltas for call in records(delta.get("tool_calls"))])


def _call_faults(pieces: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the faults in the pieces of a choice's tool calls."""
    opened: list[object] = []
    """The indices of the calls so far."""
    for piece in pieces:
        function = record(piece.get("function"))
        index = piece.get("index")
        where = f"tool_calls[{index}]"
        if index in opened:
            given = {"id": piece.get("id"), "name": function.get("name")}
            for field, value in given.items():
                if value:
                    yield f"{where}.{field} comes again as {value!r}, and clients append it"
            continue
        if index != len(opened):
            yield f"a call has the index {index!r}, expected {len(opened)}"
        opened.append(index)
        first = {"id": piece.get("id"), "type": piece.get("type"), "name": function.get("name")}
        for field, value in first.items():
            if not value:
                yield f"the first delta of {where} has no {field}"
        if first["type"] not in (None, "function"):
            yield f"{where}.type is {first['type']!r}, not 'function'"


def _usage_faults(chunks: Sequence[Chunk]) -> Iterator[str]:
    counting = [number for number, chunk in enumerate(chunks) if chunk.get("usage")]
    apart = [number for number in counting if not chunks[number].get("choices")]
    if not counting:
        yield "usage was requested (stream_options) and is missing"
    elif not apart:
        yield "usage is in a chunk with choices, not in a separate chunk"
    elif len(apart) > 1:
        yield f"{len(apart)} chunks without choices have usage, expected one"
    elif any(chunk.get("choices") for chunk in chunks[apart[0] :]):
        yield "choices come after the usage"


def _header_faults(chunks: Sequence[Chunk]) -> Iterator[str]:
    """Yield the fields that change between chunks although they must not."""
    ids = {json.dumps(chunk.get("id")): chunk.get("id") for chunk in chunks}
    if len(ids) != 1 or None in ids.values():
        yield f"the chunks of one stream have the ids {sorted(map(str, ids.values()))[:NAMED]}"
    for name in ("model", "created", "object", FINGERPRINT):
        values = {json.dumps(chunk.get(name)): chunk.get(name) for chunk in chunks}
        if name == FINGERPRINT:
            values.pop("null", None)  # vLLM 0.32 sends it with one chunk alone
        if len(values) > 1:
            yield f"{name} changes within the stream: {[*values.values()][:NAMED]}"


def _carries(delta: Mapping[str, Any]) -> bool:
    return any(value for name, value in delta.items() if name != "role")
