"""The rules for a stream of the Responses API: order, ids, indices, contents of done events.

https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.untyped import number, record, records, shown, string

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_vllm_gates.dialects.types import Event

CREATED = "response.created"
ENDS = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
BEGINNINGS = (CREATED, "response.queued", "response.in_progress")
PARTS = ("response.content_part.added", "response.content_part.done")
UNFINISHED, FINISHED = ("queued", "in_progress"), ("completed", "incomplete")
LIMIT = "max_output_tokens"
LIFECYCLE = {*BEGINNINGS, *ENDS}
# The text that a delta appends to, and its field in the event that repeats the whole text.
TEXTS = {
    "response.output_text": "text",
    "response.reasoning_text": "text",
    "response.function_call_arguments": "arguments",
}


def faults(events: Sequence[Event]) -> Iterator[str]:
    """Yield the faults of a stream's events."""
    if not events:
        yield "the stream has no event"
        return
    yield from _frames(events)
    for event in events:
        if event.kind == "error":
            yield f"the stream has an error: {shown(event.data.get('message'))}"
    yield from _life(events)
    items = _Items()
    for event in events:
        yield from items.take(event)
    yield from items.end(events[-1])


def _frames(events: Sequence[Event]) -> Iterator[str]:
    for event in events:
        if event.name and event.name != event.kind:
            yield f"the event has the name {event.name!r}, and its data has the type {event.kind!r}"
            return
    numbers = [event.data.get("sequence_number") for event in events]
    for at, (before, now) in enumerate(pairwise(numbers), 1):
        if not isinstance(before, int) or now != before + 1:
            kind = events[at].kind
            yield f"sequence_number {shown(now)} follows {shown(before)} (event {at}, {kind})"
            return


def _life(events: Sequence[Event]) -> Iterator[str]:
    if events[0].kind != CREATED:
        yield f"the first event is {events[0].kind!r}, not {CREATED!r}"
    created = [event for event in events if event.kind == CREATED]
    if len(created) > 1:
        yield f"{CREATED} comes {len(created)} times"
    for event in events:
        status = record(event.data.get("response")).get("status")
        if event.kind in BEGINNINGS and status not in UNFINISHED:
            yield f"{event.kind} has a response with the status {status!r}"
    yield from _end(events)
    for name in ("id", "model", "created_at"):
        values = [
            event.data["response"].get(name)
            for event in events
            if event.kind in LIFECYCLE and isinstance(event.data.get("response"), dict)
        ]
        if len(set(map(str, values))) > 1:
            yield f"response.{name} changes in the stream: {shown(values[0])}, {shown(values[-1])}"


def _end(events: Sequence[Event]) -> Iterator[str]:
    """Yield the faults of the event that ends a stream."""
    ends = [event for event in events if event.kind in ENDS]
    if len(ends) != 1:
        kinds = ", ".join(each.kind for each in ends) or "none"
        yield f"{len(ends)} events end the stream ({kinds})"
        return
    if events[-1] is not ends[0]:
        yield f"{events[-1].kind} comes after {ends[0].kind}"
    response = record(ends[0].data.get("response"))
    status = response.get("status")
    if status != ENDS[ends[0].kind]:
        yield f"the stream ends in {ends[0].kind}, and its response has the status {status!r}"
    if not response.get("usage"):
        yield f"{ends[0].kind} has no usage"


class _Items:
    """The output items of a stream while they are built."""

    def __init__(self) -> None:
        self._open: dict[int, Mapping[str, Any]] = {}
        self._done: dict[int, Mapping[str, Any]] = {}
        self._texts: dict[tuple[int, str, int], str] = {}
        self._repeated: set[tuple[int, str, int]] = set()
        self._parts: set[tuple[int, int]] = set()
        self._open_parts: set[tuple[int, int]] = set()

    def take(self, event: Event) -> Iterator[str]:
        """Yield the faults of an event after the previous ones."""
        kind, data = event.kind, event.data
        index = data.get("output_index")
        if kind == "response.output_item.added":
            yield from self._added(index, record(data.get("item")))
        elif not isinstance(index, int):
            return
        elif index not in self._open:
            yield f"{kind} names output_index {index}, and no item is open there"
        elif kind == "response.output_item.done":
            yield from self._closed(index, record(data.get("item")))
        else:
            yield from self._inside(event, index)

    def _added(self, index: Any, item: Mapping[str, Any]) -> Iterator[str]:
        expected, kind = len(self._open) + len(self._done), item.get("type")
        if index != expected:
            yield f"an item is added with output_index {index!r}, and {expected} is next"
        if not item.get("id"):
            yield f"an item of type {kind!r} is added without an id"
        if item.get("status") in FINISHED:
            yield f"an item of type {kind!r} is added with the status {item['status']!r}"
        if begun := text_of(item) or item.get("arguments"):
            yield f"an item of type {kind!r} is added with {shown(begun)} in it"
        others = [*self._open.values(), *self._done.values()]
        if item.get("id") in [other.get("id") for other in others]:
            yield f"two items have the id {item.get('id')!r}"
        if isinstance(index, int):
            self._open[index] = item

    def _inside(self, event: Event, index: int) -> Iterator[str]:
        kind, data = event.kind, event.data
        item = self._open[index]
        if "item_id" in data and data["item_id"] != item.get("id"):
            yield f"{kind} names item {data['item_id']!r}, and {item.get('id')!r} is at {index}"
        place = number(data.get("content_index"))
        if kind in PARTS:
            yield from self._part(kind, (index, place), record(data.get("part")))
        name, _, end = kind.rpartition(".")
        if name not in TEXTS:
            return
        key = (index, name, place)
        if name != "response.function_call_arguments" and (index, place) not in self._parts:
            yield f"{kind} comes before its content part is added"
            self._parts.add((index, place))
        if end == "delta":
            if key in self._repeated:
                yield f"{kind} comes after {name}.done"
            self._texts[key] = self._texts.get(key, "") + string(data.get("delta"))
        elif end == "done":
            self._repeated.add(key)
            said, repeated = self._texts.get(key, ""), data.get(TEXTS[name])
            if said != repeated:
                yield f"{kind} has {shown(repeated)}, and the deltas have {shown(said)}"

    def _part(self, kind: str, at: tuple[int, int], part: Mapping[str, Any]) -> Iterator[str]:
        """Yield the faults of a part that begins or ends; its text has to equal the deltas."""
        text = part.get("text")
        if kind == PARTS[0]:
            self._parts.add(at)
            self._open_parts.add(at)
            if text:
                yield f"a content part is added with {shown(text)} in it"
            return
        self._open_parts.discard(at)
        said = [self._texts[key] for key in self._texts if (key[0], key[2]) == at]
        if said and text != said[0]:
            yield f"a content part is done with {shown(text)}, and the deltas have {shown(said[0])}"

    def _closed(self, index: int, item: Mapping[str, Any]) -> Iterator[str]:
        added = self._open.pop(index)
        self._done[index] = item
        for name in ("id", "type", "call_id", "name"):
            if item.get(name) != added.get(name):
                then, now = added.get(name), item.get(name)
                yield f"an item is added with {name} {then!r}, done with {now!r}"
        for at in sorted(at for at in self._open_parts if at[0] == index):
            self._open_parts.discard(at)
            yield f"content part {at[1]} of the item at {index} is never done"
        for _, name, _ in sorted(
            key for key in self._texts if key[0] == index and key not in self._repeated
        ):
            yield f"{name}.done never comes for the item at {index}"
        if item.get("status") in UNFINISHED:
            yield f"an item of type {item.get('type')!r} is done with the status {item['status']!r}"
        texts = {
            "response.output_text": text_of(item),
            "response.reasoning_text": text_of(item),
            "response.function_call_arguments": str(item.get("arguments", "")),
        }
        for name, repeated in texts.items():
            keys = [key for key in self._texts if key[:2] == (index, name)]
            said = "".join(self._texts[key] for key in keys)
            if keys and said != repeated:
                yield f"an item is done with {shown(repeated)}, and the deltas have {shown(said)}"

    def end(self, last: Event) -> Iterator[str]:
        """Yield the faults at the end of the stream."""
        for index, item in self._open.items():
            yield f"the {item.get('type')} item at {index} is never done"
        response = last.data.get("response")
        if not isinstance(response, dict) or last.kind not in ENDS:
            return
        output = records(response.get("output"))
        ids = [item.get("id") for item in output]
        done = [self._done[index] for index in sorted(self._done)]
        streamed = [item.get("id") for item in done]
        if ids != streamed:
            yield f"{last.kind} has the items {ids}, and the stream has {streamed}"
            return
        for item, done_item in zip(output, done, strict=True):
            if _told(item) != _told(done_item):
                kind = item.get("type")
                yield f"{last.kind} has a {kind} item {shown(_told(item))}, its done event does not"


def cut_faults(response: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of a response that the limit cut: no reason, or a completed last item."""
    reason = record(response.get("incomplete_details")).get("reason")
    if reason != LIMIT:
        yield f"incomplete_details.reason is {reason!r}, not {LIMIT!r}"
    output = records(response.get("output"))
    if not output:
        return
    last = output[-1]
    if last.get("status") == "completed":
        yield f"the response is incomplete, and its last item ({last.get('type')}) is completed"


def text_of(item: Mapping[str, Any]) -> str:
    """Return the text of an item's parts."""
    return "".join(str(part.get("text", "")) for part in records(item.get("content")))


def _told(item: Mapping[str, Any]) -> list[Any]:
    """Return the contents of an item: its texts, or its call."""
    texts = [part.get("text") for part in records(item.get("content"))]
    return [item.get("type"), item.get("name"), item.get("arguments"), item.get("call_id"), *texts]
