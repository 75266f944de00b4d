"""Sends requests as they are but for the model's name, and returns what came back, timed."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.facts.tape import Tape
from pytest_vllm_gates.redaction.redactor import REDACTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_vllm_gates.incidents.types import Sent
    from pytest_vllm_gates.server.types import Endpoint

# Of the headers a request was kept with, those that say how it is to be understood.
SENT_HEADERS = ("content-type", "accept")


def resend(endpoint: Endpoint, requests: Iterable[Sent], timeout_s: float) -> list[Sent]:
    """Send requests one after the other; one that goes unanswered says so in its `error`."""
    answered = []
    for one in requests:
        tape = Tape()
        headers = {
            name.lower(): value
            for name, value in one.headers.items()
            if name.lower() in SENT_HEADERS and value != REDACTED
        }
        with http.client(replace(endpoint, tape=tape)) as client:
            request = client.build_request(
                one.method,
                one.path,
                content=one.body,
                headers={"content-type": "application/json", **headers},
                timeout=timeout_s,
            )
            with contextlib.suppress(httpx.HTTPError):  # the tape has how it ended
                client.send(request)
        (sent,) = tape.of()
        if endpoint.tape:
            endpoint.tape.keep(sent)
        answered.append(replace(sent, name=one.name))
    return answered


def readdressed(body: bytes, model: str) -> bytes:
    """Return a JSON body that asks another model, and is the same in every other byte.

    What is no JSON object, or names no model, is returned as it is.
    """
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return body
    if not isinstance(asked, dict) or not isinstance(asked.get("model"), str):
        return body
    due = {**asked, "model": model}
    for found in re.finditer(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")', body):
        start, end = found.span(1)
        changed = body[:start] + json.dumps(model).encode() + body[end:]
        if json.loads(changed) == due:
            return changed
    return body
