"""Requests and answers in readable form: indented JSON, joined streams."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import syntax
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents import compare, read
from pytest_vllm_gates.report.html.drawing import first

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.report.html.drawing import TextLimits

ASKED = re.compile(r"^ *asked with: (\{.*\})$", re.MULTILINE)
"""A failure's request, as `fixtures/checking.py` lays it out."""
MOST_BYTES = 200_000
"""The most characters of a request or answer that are laid out; the page shows fewer."""
SHOWN = 8
"""The most exchanges of an incident."""


@dataclass(frozen=True)
class ShownText:
    """A text that the reader can fold and copy."""

    title: str
    text: str


@dataclass(frozen=True)
class ShownExchange:
    """One request and its answer."""

    title: str
    texts: tuple[ShownText, ...]


@dataclass(frozen=True)
class Exchanges:
    """The exchanges of an incident or a failure."""

    shown: tuple[ShownExchange, ...]
    left_out: int


def of_incidents(folder: Path | None, paths: Sequence[str], limits: TextLimits) -> Exchanges:
    """Return the exchanges in a test's incidents; unreadable incidents are skipped."""
    shown: list[ShownExchange] = []
    left_out = 0
    for path in paths:
        if folder is None:
            break
        try:
            incident = read.read(folder / path)
            sends = [incident.sent(send) for send in incident.incident.sends]
        except (UserError, OSError, ValueError):
            continue  # the incident itself is beside the page, and --repro reports its fault
        listed, more = first(sends, max(0, min(SHOWN, limits.items) - len(shown)))
        shown += [_exchange(sent) for sent in listed]
        left_out += more
    return Exchanges(tuple(shown), left_out)


def of_reason(reason: str) -> ShownText | None:
    """Return the request in a failure, laid out; None if there is none, or if it was cut."""
    found = ASKED.search(reason[:MOST_BYTES])
    laid_out = _laid_out(found[1]) if found else ""
    return ShownText("Request", laid_out) if laid_out else None


def _exchange(sent: Sent) -> ShownExchange:
    texts = []
    if sent.body:
        body = sent.body[:MOST_BYTES].decode("utf-8", "replace")
        texts.append(ShownText("Request", _laid_out(body) or body))
    answer = sent.answer[:MOST_BYTES].decode("utf-8", "replace")
    if events := _events(answer):
        texts.append(ShownText("Answer, joined", "\n".join(compare.assembled(events))))
        texts.append(ShownText(f"Answer, event by event ({len(events):,})", answer))
    elif answer:
        texts.append(ShownText("Answer", _laid_out(answer) or answer))
    if sent.error:
        texts.append(ShownText("How it ended", sent.error))
    status = "no answer" if sent.status is None else str(sent.status)
    return ShownExchange(f"{sent.name}: {sent.method} {sent.path}, {status}", tuple(texts))


def _events(answer: str) -> list[Any]:
    """Return the JSON of a stream's events; other events are left out."""
    events = []
    for line in answer.splitlines():
        data = line[5:].strip() if line.startswith("data:") else ""
        if data and data != "[DONE]":
            try:
                events.append(syntax.json_value(data.encode()))
            except (ValueError, RecursionError):
                continue
    return events


def _laid_out(text: str) -> str:
    """Return JSON over several lines; '' for a text that is not JSON."""
    try:
        value = syntax.json_value(text.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return ""
    return json.dumps(value, ensure_ascii=False, indent=2)
