"""Sends requests as they are, and returns what came back with the time of every piece."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx2 as httpx

from pytest_vllm_gates.drive import http
from pytest_vllm_gates.facts.secrets import REDACTED
from pytest_vllm_gates.facts.tape import Tape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_vllm_gates.facts.incident import Sent
    from pytest_vllm_gates.facts.launch import Endpoint

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
