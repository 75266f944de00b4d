"""Reads an answer that was pasted below a command: the events of a stream, or a JSON object."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pytest_vllm_gates.bounded import syntax

EVENT = "data:"
OF_A_STREAM = (EVENT, "event:", "id:", "retry:", ":")
DONE = "[DONE]"
OF_AN_ANSWER = {"choices", "error", "output", "object", "data"}
STATUS_LINE = re.compile(r"\s*(?:< )?HTTP/\d(?:\.\d)? (\d{3})\b")
OBJECT = re.compile(r"^[ \t]*(?=\{)", re.MULTILINE)
FENCE = re.compile(r"\s*(?:```\w*)?\s*")
TAKEN = "the text below the command was recorded as the answer"
OK, ERRORS = 200, range(400, 600)


@dataclass(frozen=True)
class PastedAnswer:
    """The answer of a server in the text that was pasted below a command."""

    status: int | None = None
    """None if no answer was found."""
    data: bytes = b""
    note: str = ""


def lines_of(text: str) -> list[str]:
    """Return the lines of a text without blank ones and the fences of a code block."""
    return [line for line in text.splitlines() if not FENCE.fullmatch(line)]


def answer(text: str) -> PastedAnswer:
    """Find the answer in the text below a command; the note reports how it was used."""
    lines = lines_of(text)
    if not lines:
        return PastedAnswer()
    if any(line.lstrip().startswith(EVENT) for line in lines):
        data, why = _stream([line.strip() for line in lines])
        status: int | None = OK
    else:
        data, status, why = _object(text)
    if why:
        return PastedAnswer(note=f"the text below the command was ignored: {why}")
    stated = next((int(match[1]) for match in map(STATUS_LINE.match, lines) if match), None)
    status = stated or status
    if status is None:
        return PastedAnswer(note="the error below the command was ignored: it has no status")
    return PastedAnswer(
        status,
        data,
        f"{TAKEN} (status {status}; when it arrived is not known)",
    )


def _stream(lines: list[str]) -> tuple[bytes, str]:
    """Return the events of a stream, or why they are not valid."""
    kept = [line for line in lines if line.startswith(OF_A_STREAM)]
    events = [line[len(EVENT) :].strip() for line in kept if line.startswith(EVENT)]
    for number, event in enumerate(events, 1):
        if event != DONE and not isinstance(_json(event), dict):
            return b"", f"its event {number} is not a JSON object; was it cut off?"
    ended = (f"{line}\n\n" if line.startswith(EVENT) else f"{line}\n" for line in kept)
    return "".join(ended).encode("utf-8", "replace"), ""


def _object(text: str) -> tuple[bytes, int | None, str]:
    """Return a JSON answer and its status if it has one, or why it is not an answer."""
    begin = OBJECT.search(text)
    if begin is None:
        return b"", None, "it is neither a stream (data: …) nor a JSON object"
    try:
        _, end = json.JSONDecoder().raw_decode(text, begin.end())
    except (ValueError, RecursionError):
        return b"", None, "it is not a whole JSON object; was it cut off?"
    value = _json(text[begin.end() : end])
    if not isinstance(value, dict) or OF_AN_ANSWER.isdisjoint(value):
        return b"", None, "it is not an answer of an OpenAI-compatible server"
    status: int | None = OK
    if value.get("error") or value.get("object") == "error":
        error = value.get("error")
        status = _code((error if isinstance(error, dict) else value).get("code"))
    return text[begin.end() : end].encode("utf-8", "replace"), status, ""


def _code(value: object) -> int | None:
    return value if isinstance(value, int) and value in ERRORS else None


def _json(text: str) -> Any:
    """Return a JSON value; None for a text that is not JSON."""
    try:
        return syntax.json_value(text)
    except syntax.BadSyntaxError:
        return None
