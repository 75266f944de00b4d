"""Sends the requests of an incident again, byte for byte except for the model's name."""

from __future__ import annotations

import contextlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.catalog.matrix import Cell
from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.answer import Exchange
from pytest_vllm_gates.client.chat import Chat
from pytest_vllm_gates.client.recorder import HEADER
from pytest_vllm_gates.client.tape import Tape
from pytest_vllm_gates.conversations.walk import CELLS_AT_A_TIME, CellClient
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.redaction.values import REDACTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.answer import Answer
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.incidents.read import IncidentFolder
    from pytest_vllm_gates.incidents.types import CellSends, RecordedWalk

# The recorded headers that are sent again: they define how the body is read.
SENT_HEADERS = ("content-type", "accept")


def resend(endpoint: Endpoint, requests: Iterable[Sent], timeout_s: float) -> list[Sent]:
    """Send requests one after the other; an unanswered request has the reason in its `error`."""
    answered = []
    for original in requests:
        tape = Tape()
        headers = {
            name.lower(): value
            for name, value in original.headers.items()
            if name.lower() in SENT_HEADERS and value != REDACTED
        }
        with http.client(replace(endpoint, tape=tape)) as client:
            request = client.build_request(
                original.method,
                original.path,
                content=original.body,
                headers={"content-type": "application/json", **headers},
                timeout=timeout_s,
            )
            with contextlib.suppress(httpx.HTTPError):  # the tape has how it ended
                client.send(request)
        (sent,) = tape.of()
        if endpoint.tape:
            endpoint.tape.keep(sent)
        answered.append(replace(sent, name=original.name))
    return answered


def readdressed(body: bytes, model: str) -> bytes:
    """Return a JSON body that names another model, and is the same in every other byte.

    A body that is not a JSON object, or names no model, is returned unchanged.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return body
    if not isinstance(request, dict) or not isinstance(request.get("model"), str):
        return body
    expected = {**request, "model": model}
    for match in re.finditer(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")', body):
        start, end = match.span(1)
        changed = body[:start] + json.dumps(model).encode() + body[end:]
        if json.loads(changed) == expected:
            return changed
    return body


AS_SENT = "x-gates-as-sent"
"""The header that names the send whose bytes replace a request's body; it is not sent."""


class AsSent(httpx.BaseTransport):
    """A transport that gives each request the bytes of the incident's send that it names."""

    def __init__(
        self, incident_folder: IncidentFolder, model: str, inner: httpx.BaseTransport
    ) -> None:
        self._incident_folder = incident_folder
        self._model = model
        self._inner = inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Replace the body, and pass the request on."""
        name = request.headers.pop(AS_SENT, None)
        if name is None:
            return self._inner.handle_request(request)
        body = readdressed(
            self._incident_folder.body(self._incident_folder.send(name)), self._model
        )
        headers = {
            key: value
            for key, value in request.headers.items()
            if key.lower() not in ("content-length", "transfer-encoding")
        }
        return self._inner.handle_request(
            httpx.Request(
                request.method,
                request.url,
                headers=headers,
                content=body,
                extensions=request.extensions,
            )
        )

    def close(self) -> None:
        """Close the inner transport."""
        self._inner.close()


class ReplayedWalk:
    """The walk of an incident: its cells' requests are sent again, byte for byte."""

    def __init__(
        self,
        endpoint: Endpoint,
        family: Family,
        incident_folder: IncidentFolder,
        walk: RecordedWalk,
    ) -> None:
        self._incident_folder = incident_folder
        self._walk = walk
        recorder = http.transport(endpoint)
        self._chat = Chat(endpoint, family, AsSent(incident_folder, endpoint.model, recorder))
        self._asker = CellClient(endpoint, self._chat, recorder)

    @property
    def requests(self) -> int:
        """The number of requests sent."""
        return self._asker.requests

    def run(self) -> tuple[Exchange, ...]:
        """Send the requests of every cell; the cells with a stop come last."""
        plain = [cell for cell in self._walk.cells if cell.stop is None]
        stopping = [cell for cell in self._walk.cells if cell.stop is not None]
        with self._chat.client, ThreadPoolExecutor(CELLS_AT_A_TIME) as pool:
            exchanges = list(pool.map(self._ask, plain))
            answers = {
                cell_sends.whole: each.whole
                for cell_sends, each in zip(plain, exchanges, strict=True)
                if each.whole
            }
            exchanges += pool.map(lambda cell_sends: self._stopped(cell_sends, answers), stopping)
        return tuple(exchanges)

    def _stopped(self, cell_sends: CellSends, answers: Mapping[str, Answer]) -> Exchange:
        unstopped = answers.get(cell_sends.unstopped) if cell_sends.unstopped else None
        if unstopped is None and cell_sends.unstopped:
            unstopped = self._chat.ask(
                self._request(cell_sends.unstopped), {AS_SENT: cell_sends.unstopped}
            )
        return self._ask(cell_sends, unstopped)

    def _ask(self, cell_sends: CellSends, unstopped: Answer | None = None) -> Exchange:
        request = self._request(cell_sends.whole)
        exchange = Exchange(Cell(**cell_sends.cell), cell_sends.asked, request, cell_sends.thinks)
        sends = {
            "whole": cell_sends.whole,
            "streamed": cell_sends.streamed,
            "widened": cell_sends.widened,
        }
        headers = {variant: self._headers(name) for variant, name in sends.items() if name}
        return self._asker.ask(
            replace(exchange, unstopped=unstopped, stop=cell_sends.stop), headers
        )

    def _headers(self, name: str) -> dict[str, str]:
        recorded = {
            key.lower(): value for key, value in self._incident_folder.send(name).headers.items()
        }
        request_id = {HEADER: recorded[HEADER]} if HEADER in recorded else {}
        return {AS_SENT: name, **request_id}

    def _request(self, name: str) -> dict[str, Any]:
        """Return a request's body without the model and the streaming options."""
        try:
            body = json.loads(self._incident_folder.body(self._incident_folder.send(name)))
        except ValueError as error:
            raise UserError(
                f"the incident {self._incident_folder.folder} has no chat request for {name!r}: "
                f"{error}"
            ) from error
        left_out = ("model", "stream", "stream_options", "stream_interval")
        return {key: value for key, value in body.items() if key not in left_out}
