"""Imports requests from an OpenAI batch file: one request a line, in JSON, without answers.

https://platform.openai.com/docs/guides/batch: `custom_id`, `method`, `url` and `body`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import syntax
from pytest_vllm_gates.bounded.limits import excerpt
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents.importers import request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_vllm_gates.client.exchange import Sent

KEYS = ("custom_id", "method", "url", "body")
JSON = {"content-type": "application/json"}


def claims(text: str) -> bool:
    """Return whether a text is such a file: its first line is a request with a `custom_id`."""
    first = text.lstrip("\ufeff\r\n\t ").partition("\n")[0]
    if '"custom_id"' not in first:
        return False
    try:
        value = syntax.json_value(first)
    except syntax.BadSyntaxError:
        return False
    return isinstance(value, dict) and all(key in value for key in KEYS)


def requests(text: str, folder: Path) -> list[Sent]:
    """Return every request, in the file's order."""
    del folder
    return [
        _sent(number, values)
        for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1)
        if line.strip()
        for values in _values(number, line)
    ]


def _values(number: int, line: str) -> Iterator[dict[str, Any]]:
    try:
        values = syntax.json_value(line)
    except syntax.BadSyntaxError as error:
        raise UserError(f"line {number} of this batch file is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise UserError(f"line {number} of this batch file is not a JSON object")
    yield values


def _sent(number: int, values: dict[str, Any]) -> Sent:
    place = f"line {number} of this batch file"
    method, url, body = (values.get(key) for key in KEYS[1:])
    if method != "POST":
        raise UserError(f"{place}: the method is {excerpt(method)}, not POST")
    if not isinstance(url, str):
        raise UserError(f"{place}: the url is {excerpt(url)}")
    if not isinstance(body, dict):
        raise UserError(f"{place}: the body is not a JSON object")
    try:
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place} cannot be sent: {error}") from error
    return request(url, data, headers=JSON)
