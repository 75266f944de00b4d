"""A request and its answer on their way through the proxy, as faults read and alter them."""

from __future__ import annotations

import http
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

JSON = "application/json"
EVENTS = "text/event-stream"
CHAT = "/v1/chat/completions"
LONGEST_TOKENS = 1024

Part = dict[str, Any]


@dataclass(eq=False)
class Exchange:
    """One request on its way to the server, then its answer on the way back.

    Two equal requests are distinct: each waits for its own answer.
    """

    method: str
    path: str
    body: dict[str, Any]
    """The request's JSON; empty where it has none, or none that is an object."""
    key: str | None
    raw: bytes | None = None
    """A body that is not a JSON object, passed on unchanged."""
    size: int = 0
    """Bytes of the request's body."""
    content_type: str | None = JSON
    headers: dict[str, str] = field(default_factory=dict)
    """Other headers of the request that a server looks at."""
    status: int = 200
    kind: str = JSON
    shown_headers: dict[str, str] = field(default_factory=dict)
    """Other headers of the answer."""
    events: list[dict[str, Any]] = field(default_factory=list)
    """The answer's JSON: one object, or one for every event of a stream."""
    text: str | None = None
    """The text that is sent in place of `events`."""
    done: bool = True
    """Whether a stream ends in [DONE]."""
    trusted: bool = False
    """Whether the request is passed on with the right key, whatever came."""
    cut_after: int | None = None
    """Events after which the connection breaks."""
    named: bool = False
    """Whether the server names its events by their type, as in all dialects but OpenAI's first."""
    frame: Callable[[str], str] = "data: {}\n\n".format
    """Formats an event from its data."""
    shown_kind: str | None = None
    """The content type that replaces `kind`."""
    pause_s: Callable[[int, int], float] | None = None
    """Seconds before an event, by its number and the number of events."""
    unanswered: Callable[[], int] = lambda: 1
    """How many requests, this one included, the proxy has yet to answer."""
    kept: bool = False
    """Whether the server's answer is read to its end although the client is gone."""

    @property
    def chat(self) -> bool:
        """Whether it is a chat completion that was answered."""
        return self.path == CHAT and self.status == http.HTTPStatus.OK

    @property
    def streamed(self) -> bool:
        """Whether a stream is requested."""
        return bool(self.body.get("stream"))

    @property
    def scored(self) -> bool:
        """Whether choices with their log-probabilities and tokens are requested, as text."""
        wanted = all(self.body.get(name) for name in ("logprobs", "return_token_ids"))
        return wanted and not self.body.get("return_tokens_as_token_ids")

    @property
    def requested(self) -> bool:
        """Whether the request has a part whose loss shows without a comparison.

        An unlikely format, a strict tool, another than the first tool, or the rest of an answer.
        """
        tools = self.body.get("tools") or ()
        strict = any(tool["function"].get("strict") for tool in tools)
        named = self.body.get("tool_choice")
        other = isinstance(named, dict) and named["function"] != _name_of(tools)
        shape = self.body.get("response_format") or {}
        schema = (shape.get("json_schema") or {}).get("schema") or {}
        outputs = self.body.get("structured_outputs") or {}
        regex = outputs.get("regex", "")
        unlikely = "enum" in schema or shape.get("type") == "json_object"
        unlikely = unlikely or regex.startswith("vermilion") or self.chosen
        return strict or other or unlikely or "continue_final_message" in self.body

    @property
    def chosen(self) -> bool:
        """Whether the answer is to be one given text, character by character."""
        outputs = self.body.get("structured_outputs") or {}
        return not self.body.get("tools") and len(outputs.get("choice", ())) == 1

    @property
    def endless(self) -> bool:
        """Whether the answer is very long by request: it is passed on as it comes."""
        return bool(self.body.get("ignore_eos")) and self.body.get("max_tokens", 0) > LONGEST_TOKENS

    @property
    def choices(self) -> Iterator[dict[str, Any]]:
        """The choices of the answer, chunk after chunk."""
        for event in self.events:
            yield from event.get("choices", ())

    @property
    def parts(self) -> Iterator[Part]:
        """The message, or the deltas of a stream."""
        for choice in self.choices:
            yield choice["delta" if self.streamed else "message"]

    @property
    def calls(self) -> Iterator[dict[str, Any]]:
        """The tool calls of the message or the pieces of them in the deltas."""
        for part in self.parts:
            yield from part.get("tool_calls") or ()


def _name_of(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    return {"name": tools[0]["function"]["name"]} if tools else None
