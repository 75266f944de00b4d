"""One conversation in one API: the request, the reply, and the official client's reading."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_vllm_gates.bounded import syntax
from pytest_vllm_gates.outcomes import Case

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.client.answer import Answer

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "chat", "completions", "responses", "messages"
WHOLE, STREAM = "whole", "stream"
DONE = "[DONE]"
OK = 200
ERROR_CHARACTERS = 200
CUT_OFF = {"end": "cut off by the server"}
"""The trait of an answer within which the server ended the connection."""


class Event(NamedTuple):
    """One server-sent event with a JSON object."""

    name: str
    """Its `event:` line; empty if it has none."""
    data: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The type that its data names."""
        return str(self.data.get("type", ""))


@dataclass(frozen=True)
class Reply:
    """A server's answer in one dialect, whole or as a stream."""

    dialect: str
    mode: str
    case: str
    request: Mapping[str, Any]
    status: int | None = None
    body: Mapping[str, Any] = field(default_factory=dict)
    """The JSON object of a whole answer, or of an error."""
    events: tuple[Event, ...] = ()
    """The events of a stream."""
    done: bool = False
    """Whether the stream ends in OpenAI's `[DONE]`."""
    assembled: Mapping[str, Any] = field(default_factory=dict)
    """The official client's result, as JSON."""
    complaint: str = ""
    """The official client's error; empty if it read everything."""
    cut: bool = False
    """Whether the server ended the connection within the answer."""

    @property
    def answered(self) -> bool:
        """Whether the server accepted the request."""
        return self.status == OK

    @property
    def error(self) -> str:
        """The message of a refusal, or why no answer came."""
        error = self.body.get("error")
        message = error.get("message") if isinstance(error, dict) else error
        return str(message or self.complaint or "no error message")[:ERROR_CHARACTERS]

    @property
    def finding_case(self) -> Case:
        """The reply as a case of a check."""
        name = f"{self.dialect} {self.mode}: {self.case}"
        traits = {"dialect": self.dialect, "mode": self.mode, "case": self.case}
        if self.cut:
            traits |= CUT_OFF
        return Case(name, traits, self.request)


@dataclass(frozen=True)
class HeldDialogue:
    """One case: the chat as the reference, and the replies of the other dialects."""

    name: str
    chat_request: Mapping[str, Any]
    chat: Answer
    prompt_ids: tuple[int, ...]
    """The tokens of the chat's prompt; empty if the server does not return them."""
    near_tie: bool
    """Whether a token of the chat's answer was hardly more likely than another."""
    replies: tuple[Reply, ...] = ()
    limit: int = 0
    """The token limit that has to cut the answer; 0 for none."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """The prompt's number of tokens by each route that only counts."""
    count_requests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rendered: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The prompt's tokens by each route that only renders."""
    sampling: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The sampling parameters in effect, by the routes that return them."""

    @property
    def is_cut(self) -> bool:
        """Whether the chat's answer reaches its token limit."""
        usage = self.chat.usage
        return usage is not None and usage.completion_tokens >= self.chat_request["max_tokens"]

    def of(self, dialect: str, mode: str) -> Reply | None:
        """Return the answered reply of a dialect; None without one."""
        found = (each for each in self.replies if (each.dialect, each.mode) == (dialect, mode))
        return next((each for each in found if each.answered), None)


@dataclass(frozen=True)
class Dialogues:
    """All cases of one family, with the omitted ones and their reasons."""

    dialogues: tuple[HeldDialogue, ...]
    not_applicable: Mapping[str, str]
    requests: int
    seconds: float
    names: tuple[str, ...] = ()
    """The names of the model; the requested name comes first."""

    @property
    def answered(self) -> Iterator[tuple[HeldDialogue, Reply]]:
        """All replies with status 200, each with its dialogue."""
        for dialogue in self.dialogues:
            for reply in dialogue.replies:
                if reply.answered:
                    yield dialogue, reply

    @property
    def cases(self) -> list[Case]:
        """All replies with status 200 as cases."""
        return [reply.finding_case for _, reply in self.answered]


def events_of(data: bytes) -> tuple[tuple[Event, ...], bool]:
    """Return the events of a stream and whether it ends in `[DONE]`; comments are left out.

    Data that is not a JSON object becomes an event without a type.
    """
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    events: list[Event] = []
    done = False
    for block in text.split("\n\n"):
        fields = [line.partition(":") for line in block.split("\n") if line[:1] != ":"]
        lines = [value.removeprefix(" ") for name, _, value in fields if name == "data"]
        names = [value.removeprefix(" ") for name, _, value in fields if name == "event"]
        if not lines:
            continue
        joined = "\n".join(lines)
        done = joined == DONE
        if not done:
            events.append(Event(names[-1] if names else "", _object(joined)))
    return tuple(events), done


def _object(text: str) -> Mapping[str, Any]:
    try:
        value = syntax.json_value(text)
    except syntax.BadSyntaxError:
        return {"unreadable": text[:80]}
    return value if isinstance(value, dict) else {"unreadable": text[:80]}
