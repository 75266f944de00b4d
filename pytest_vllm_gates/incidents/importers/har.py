"""Imports requests from a HAR file (HTTP Archive 1.2), as browsers and proxies save it."""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import syntax
from pytest_vllm_gates.client.exchange import Sent, redacted_headers
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents.importers import V1, request

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def claims(text: str) -> bool:
    """Return whether a text is a HAR file."""
    return text.lstrip().startswith("{") and '"log"' in text[:2000] and '"entries"' in text


def requests(text: str, folder: Path) -> list[Sent]:
    """Return the file's requests to a model, with their responses."""
    del folder
    try:
        entries = syntax.json_value(text.removeprefix("\ufeff"))["log"]["entries"]
        records = [
            record
            for record in entries
            if record["request"]["method"] == "POST" and V1 in record["request"]["url"]
        ]
        return [_sent(record) for record in records]
    except (ValueError, RecursionError) as error:
        raise UserError(f"this is not a HAR file, or it is cut off: {error}") from error
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(
            f"this HAR file is not complete: {type(error).__name__}: {error}"
        ) from error


def _sent(record: Mapping[str, Any]) -> Sent:
    message = record["request"]
    body = str((message.get("postData") or {}).get("text") or "").encode("utf-8", "replace")
    sent = request(message["url"], body, headers=_headers(message))
    answer = record.get("response") or {}
    if not answer.get("status"):
        return sent
    content = answer.get("content") or {}
    data = str(content.get("text") or "").encode("utf-8", "replace")
    if content.get("encoding") == "base64":
        try:
            data = base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise UserError(f"a response of this HAR file is not base64: {error}") from error
    waited_ms = float((record.get("timings") or {}).get("wait") or record.get("time") or 0)
    return replace(
        sent,
        status=int(answer["status"]),
        response_headers=redacted_headers(_headers(answer)),
        pieces=((max(waited_ms, 0.0) / 1000, data),) if data else (),
    )


def _headers(message: Mapping[str, Any]) -> dict[str, str]:
    return {str(header["name"]): str(header["value"]) for header in message.get("headers") or ()}
