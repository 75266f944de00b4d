"""The real server behind the proxy; equal requests are sent to it once."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from faults.exchange import EVENTS, JSON

if TYPE_CHECKING:
    from faults.exchange import Exchange

TIMEOUT_S = 120.0
REQUEST_ID = "x-request-id"
OWN_ID = re.compile(r"[0-9a-f]{32}")
"""The ids that the gates draw, not those that they send on purpose."""
# Headers of an answer that a proxy hands on, besides those of its body.
ANSWERED = (
    "access-control-allow-credentials", "access-control-allow-headers",
    "access-control-allow-methods", "access-control-allow-origin", "allow", "location",
    "www-authenticate", "x-request-id",
)  # fmt: skip


class Upstream:
    """The real server. It answers greedily, so an earlier request is not sent again."""

    def __init__(self, base_url: str, key: str | None, model: str) -> None:
        self.host = urlsplit(base_url).netloc
        self.key = key
        self.model = model
        self._known: dict[str, tuple[str, tuple[int, str, str, dict[str, str]]]] = {}

    def answer(self, exchange: Exchange) -> None:
        """Fill in the real server's answer."""
        key = self.key if exchange.trusted else exchange.key
        # Each request of the gates has an id, which its answer repeats: equal ones differ in it.
        headers = {name.lower(): value for name, value in exchange.headers.items()}
        own = headers.get(REQUEST_ID, "")
        own = headers.pop(REQUEST_ID) if OWN_ID.fullmatch(own) else ""
        facts = [exchange.method, exchange.path, key, exchange.content_type, exchange.size]
        facts += [f"{name}: {value}" for name, value in sorted(headers.items())]
        key_bytes = json.dumps([*facts, exchange.body]).encode() + (exchange.raw or b"")
        digest = hashlib.sha256(key_bytes).hexdigest()
        sampled = bool(exchange.body.get("temperature"))
        if exchange.method == "GET" or sampled or digest not in self._known:
            self._known[digest] = (own, self._ask(exchange))
        asked, (exchange.status, exchange.kind, text, shown) = self._known[digest]
        if asked and own:
            text = text.replace(asked, own)
            shown = {name: value.replace(asked, own) for name, value in shown.items()}
        exchange.shown_headers = dict(shown)
        if exchange.kind == EVENTS:
            lines = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
            exchange.events = [json.loads(line) for line in lines if line != "[DONE]"]
            exchange.done = "[DONE]" in lines
            exchange.named = text.startswith("event:")
        elif exchange.kind == JSON and text:
            exchange.events = [json.loads(text)]
        else:
            exchange.text = text

    def send(self, exchange: Exchange) -> http.client.HTTPConnection:
        """Pass a request on; its answer is still to be read."""
        key = self.key if exchange.trusted else exchange.key
        connection = http.client.HTTPConnection(self.host, timeout=TIMEOUT_S)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        headers |= exchange.headers
        if exchange.content_type:
            headers["Content-Type"] = exchange.content_type
        body = exchange.raw
        if body is None and exchange.size:
            body = json.dumps(exchange.body).encode()
        connection.request(exchange.method, exchange.path, body, headers)
        return connection

    def _ask(self, exchange: Exchange) -> tuple[int, str, str, dict[str, str]]:
        connection = self.send(exchange)
        reply = connection.getresponse()
        kind = reply.headers.get_content_type() if "content-type" in reply.headers else ""
        text = reply.read().decode("utf-8")
        connection.close()
        headers = {name: reply.headers[name] for name in ANSWERED if name in reply.headers}
        return reply.status, kind, text, headers
