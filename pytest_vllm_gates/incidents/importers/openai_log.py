"""Imports requests from the debug log (`OPENAI_LOG=debug`) of `openai` clients before release 3."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents.importers import path_of, request
from pytest_vllm_gates.incidents.importers.vllm_log import value_at

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.client.exchange import Sent

OPTIONS = "Request options: {"
SILENT = "Building HTTP request: method="
FIELD = re.compile(r"'(url|json_data|extra_json|method)': ")


def claims(text: str) -> bool:
    """Return whether a text is such a log."""
    return OPTIONS in text or SILENT in text


def requests(text: str, folder: Path) -> list[Sent]:
    """Return every request in the log that has a body."""
    del folder
    requests_sent = []
    for line in text.splitlines():
        at = line.find(OPTIONS)
        if at >= 0 and (sent := _request(line[at + len(OPTIONS) :])):
            requests_sent.append(sent)
    if not requests_sent and SILENT in text:
        raise UserError(
            "this log has no bodies: openai 3 and later do not log them; log with an older "
            "client, or use the server's log (--enable-log-requests, at log level DEBUG)"
        )
    return requests_sent


def _request(options: str) -> Sent | None:
    fields: dict[str, Any] = {}
    at = 0
    # The other fields are not literals: timeouts, functions, NOT_GIVEN.
    while match := FIELD.search(options, at):
        at = match.end()
        try:
            fields[match[1]], at = value_at(options, at)
        except ValueError as error:
            if match[1] in ("json_data", "extra_json"):
                raise UserError(f"a request of this log cannot be read: {error}") from error
    body = fields.get("json_data")
    if not isinstance(body, dict):
        return None
    extra = fields.get("extra_json")
    body = {**body, **extra} if isinstance(extra, dict) else body
    url = str(fields.get("url", ""))
    path = f"/v1/{url.removeprefix('/v1').lstrip('/')}" if url and "://" not in url else url
    data = json.dumps(body, ensure_ascii=False, default=str).encode("utf-8", "replace")
    return request(path or path_of(body), data, headers={"content-type": "application/json"})
