"""Parses the expectations of an answer that a user types, and judges an answer by them.

An incident stores its expectations in `expected/expectations.txt`, one a line.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import syntax
from pytest_vllm_gates.client.sameness import why_degenerate
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents.types import CAPTURED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.incidents.read import IncidentFolder

FILE = "expected/expectations.txt"
"""The file that stores an incident's expectations, one a line."""
FORMS = (
    "status is N", "finish_reason is WORD", "content has TEXT", "content lacks TEXT",
    "content is JSON", "reasoning has TEXT", "reasoning lacks TEXT", "calls NAME", "calls nothing",
    "whole", "sense", "within SECONDS s",
)  # fmt: skip
PATTERN = re.compile(
    r"(?P<field>status|finish_reason) is (?P<is>\w+)"
    r"|(?P<text>content|reasoning) (?P<how>has|lacks) (?P<part>.+)"
    r"|(?P<json>content is JSON)"
    r"|calls (?P<calls>[\w.-]{1,200})"
    r"|(?P<word>whole|sense)"
    r"|within (?P<seconds>\d+(?:\.\d+)?) ?s",
    re.DOTALL,
)
DEFAULT = ("status is 200", "whole", "sense")
WITHOUT_A_CHAT = ("status is 200",)


@dataclass(frozen=True)
class Expectation:
    """One expectation: `name` is judged by `kind` and compared with `value`."""

    kind: str
    name: str
    value: str
    said: str


def parse(text: str) -> Expectation:
    """Read an expectation; raises `UserError` with the list of forms."""
    typed = text.strip()
    match = PATTERN.fullmatch(typed)
    if match is None or (match["field"] == "status" and not match["is"].isdecimal()):
        raise UserError(f"unknown expectation: {text!r}; the forms are: {'; '.join(FORMS)}")
    if match["field"]:
        return Expectation("is", match["field"], match["is"], typed)
    if match["text"]:
        return Expectation(match["how"], match["text"], match["part"], typed)
    if match["calls"]:
        return Expectation("calls", "", match["calls"], typed)
    if match["seconds"]:
        return Expectation("within", "", match["seconds"], typed)
    return Expectation(match["word"] or "json", "content", "", typed)


def parse_all(texts: Iterable[str]) -> tuple[Expectation, ...]:
    """Read expectations; empty lines are skipped."""
    return tuple(parse(text) for text in texts if text.strip())


def of(incident_folder: IncidentFolder) -> tuple[Expectation, ...]:
    """Return the expectations of an incident; none if it has no captured request."""
    if incident_folder.incident.gate != CAPTURED:
        return ()
    text = incident_folder.text(FILE)
    return parse_all(text.splitlines() if text else DEFAULT)


SHOWN = 120
DONE = "[DONE]"
ERROR = 400
"""The lowest status of an error."""


@dataclass
class FirstChoice:
    """The first choice of an answer, with its pieces joined."""

    content: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    calls: dict[int, list[str]] = field(default_factory=dict)
    """Name and arguments of each tool call, by its index."""
    broken: str = ""
    """Why the answer is not whole."""

    def text(self, name: str) -> str:
        """Return `content` or `reasoning`."""
        return self.content if name == "content" else self.reasoning


def broken(expectations: Iterable[Expectation], sent: Sent) -> list[str]:
    """Return one sentence for each unmet expectation."""
    return [message for _, message in unmet(expectations, sent)]


def unmet(expectations: Iterable[Expectation], sent: Sent) -> list[tuple[Expectation, str]]:
    """Return the unmet expectations, each with one sentence on what the answer had instead.

    If the answer is an error, the sentence ends with the status.
    """
    choice = completion(sent)
    is_error = sent.status is not None and sent.status >= ERROR
    status = f" (status {sent.status})" if is_error else ""
    return [
        (expectation, message if expectation.name == "status" else f"{message}{status}")
        for expectation in expectations
        for message in _broken(expectation, sent, choice)
    ]


def expects_error(expectations: Iterable[Expectation]) -> bool:
    """Return whether an error is expected: `status is 400`, for example."""
    return any(
        expectation.name == "status" and int(expectation.value) >= ERROR
        for expectation in expectations
    )


def completion(sent: Sent) -> FirstChoice:
    """Read the answer to a chat or completion request, whole or streamed."""
    choice = FirstChoice()
    text = sent.answer.decode("utf-8", "replace")
    events = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    try:
        parts = (
            [json.loads(event) for event in events if event != DONE]
            if events
            else [json.loads(text)]
        )
        for part in parts:
            _add(choice, part)
    except (ValueError, RecursionError, TypeError, AttributeError, KeyError) as error:
        choice.broken = f"it cannot be read: {type(error).__name__}: {error}"
    if events and DONE not in events:
        choice.broken = choice.broken or "the stream ends without [DONE]"
    if not choice.broken and choice.finish_reason is None:
        choice.broken = "it has no finish_reason"
    choice.broken = sent.error or choice.broken
    return choice


def _add(answer: FirstChoice, part: Any) -> None:
    if part.get("error"):
        answer.broken = f"it contains an error: {json.dumps(part['error'])[:SHOWN]}"
    for choice in part.get("choices") or ():
        if choice.get("index", 0):
            continue
        message = choice.get("delta") or choice.get("message") or {}
        answer.content += message.get("content") or choice.get("text") or ""
        answer.reasoning += message.get("reasoning") or message.get("reasoning_content") or ""
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
        for place, call in enumerate(message.get("tool_calls") or ()):
            name_and_arguments = answer.calls.setdefault(call.get("index", place), ["", ""])
            function = call.get("function") or {}
            name_and_arguments[0] += function.get("name") or ""
            name_and_arguments[1] += function.get("arguments") or ""


def _broken(expectation: Expectation, sent: Sent, choice: FirstChoice) -> Iterator[str]:
    content = choice.text(expectation.name)
    if expectation.kind == "is":
        yield from _is_not(expectation, sent, choice)
    elif expectation.kind == "calls":
        yield from _wrong_calls(expectation.value, list(choice.calls.values()))
    elif expectation.kind in ("has", "lacks") and (expectation.value in content) is (
        expectation.kind == "lacks"
    ):
        does = "lacks" if expectation.kind == "has" else "has"
        yield f"{expectation.name} {does} {expectation.value!r}: {content[:SHOWN]!r}"
    elif expectation.kind == "within":
        yield from _late(float(expectation.value), sent)
    elif expectation.kind == "whole" and choice.broken:
        yield f"the answer is not whole: {choice.broken}"
    elif expectation.kind == "sense" and not choice.calls:
        if why := why_degenerate(choice.content or choice.reasoning):
            yield why
    elif expectation.kind == "json" and not _is_json(choice.content):
        yield f"content is not JSON: {choice.content[:SHOWN]!r}"


def _is_not(expectation: Expectation, sent: Sent, choice: FirstChoice) -> Iterator[str]:
    actual = str(sent.status if expectation.name == "status" else choice.finish_reason)
    if actual != expectation.value:
        body = sent.error or sent.answer.decode("utf-8", "replace")[:SHOWN]
        detail = f": {body!r}" if expectation.name == "status" else ""
        yield f"{expectation.name} is {actual}, not {expectation.value}{detail}"


def _late(limit_s: float, sent: Sent) -> Iterator[str]:
    last_s = sent.pieces[-1][0] if sent.pieces else None
    if last_s is None or last_s > limit_s:
        yield f"it took {'for ever' if last_s is None else f'{last_s:.3f} s'}, not {limit_s:g} s"


def _wrong_calls(expected: str, calls: Sequence[Sequence[str]]) -> Iterator[str]:
    names = [name for name, _ in calls]
    if expected == "nothing":
        if names:
            yield f"it calls {', '.join(names)}, but no call was expected"
    elif expected not in names:
        yield f"it calls {', '.join(names) or 'nothing'}, not {expected}"
    for name, arguments in calls:
        if name == expected and not _is_json(arguments):
            yield f"the arguments of {name} are not JSON: {arguments[:SHOWN]!r}"


def _is_json(text: str) -> bool:
    try:
        syntax.json_value(text, unique=True, finite=True)
    except syntax.BadSyntaxError:
        return False
    return True
