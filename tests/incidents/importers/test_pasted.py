"""A command is read out of a ticket, with the answer that was pasted below it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents.expectation import broken, parse_all
from pytest_vllm_gates.incidents.importers import curl

if TYPE_CHECKING:
    from pathlib import Path

URL = "https://h/v1/chat/completions"
BODY = '{"model": "qwen3.5",\n "messages": [{"role": "user", "content": "Hi"}]}'
COMMAND = f"curl {URL} \\\n  -H 'Content-Type: application/json' \\\n  -d '{BODY}'"
DELTA = '{"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": "stop"}]}'
STREAM = f"data: {DELTA}\n\ndata: [DONE]\n"
WHOLE = json.dumps(
    {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}, indent=1
)
TAKEN = (
    "the text below the command was recorded as the answer "
    "(status {}; when it arrived is not known)"
)


@pytest.mark.parametrize(
    "below",
    [
        STREAM, f"\n  {STREAM}", f"It answered:\n{STREAM}and stopped.", f"```\n{STREAM}```",
        f"event: x\n{STREAM}", STREAM.replace("\n", "\r\n"), WHOLE, f"and got\n\n{WHOLE}\nThanks",
    ],
)  # fmt: skip
def test_answer_below_the_command_is_the_one_that_was_seen(tmp_path: Path, below: str) -> None:
    (sent,), notes = curl.read(f"{COMMAND}\n{below}", tmp_path)
    assert (sent.body.decode(), sent.status) == (BODY, 200)
    assert broken(parse_all(["content has Hello", "whole", "sense"]), sent) == []
    assert notes == [TAKEN.format(200)]


@pytest.mark.parametrize(
    ("below", "status"),
    [
        ('{"error": {"message": "no such model", "code": 404}}', 404),
        ('{"object": "error", "message": "no such model", "code": 400}', 400),
        ('HTTP/1.1 503 Service Unavailable\r\nserver: x\r\n\r\n{"error": "busy"}', 503),
        (f"HTTP/2 200\n\n{WHOLE}", 200),
    ],
)
def test_status_of_a_pasted_answer_is_the_one_it_names(
    tmp_path: Path, below: str, status: int
) -> None:
    (sent,), notes = curl.read(f"{COMMAND}\n{below}", tmp_path)
    assert (sent.status, notes) == (status, [TAKEN.format(status)])


@pytest.mark.parametrize(
    ("below", "why"),
    [
        ("It calls nothing.", "it is neither a stream (data: …) nor a JSON object"),
        ('{"choices": [', "it is not a whole JSON object; was it cut off?"),
        ('{"a": 1}', "it is not an answer of an OpenAI-compatible server"),
        ('data: {"choices": [{"del', "its event 1 is not a JSON object; was it cut off?"),
        ("[" * 9000 + "\n" + '{"a":' * 9000, "it is not a whole JSON object; was it cut off?"),
    ],
)
def test_text_that_is_not_an_answer_is_ignored(tmp_path: Path, below: str, why: str) -> None:
    (sent,), notes = curl.read(f"{COMMAND}\n{below}", tmp_path)
    assert (sent.status, sent.pieces) == (None, ())
    assert notes == [f"the text below the command was ignored: {why}"]


def test_error_without_a_status_is_ignored(tmp_path: Path) -> None:
    (sent,), notes = curl.read(COMMAND + '\n{"error": "busy"}', tmp_path)
    assert sent.status is None
    assert notes == ["the error below the command was ignored: it has no status"]


@pytest.mark.parametrize(
    ("before", "notes"),
    [
        ("", []),
        ("\n```bash\n", []),
        ("Hello,\n", ["1 line before the command was skipped"]),
        ("Hello,\n\nthis fails:\n$ ", ["2 lines before the command were skipped"]),
    ],
)
def test_text_before_the_command_is_skipped(tmp_path: Path, before: str, notes: list[str]) -> None:
    text = before + COMMAND
    assert curl.claims(text)
    (sent,), said = curl.read(text, tmp_path)
    assert (sent.body.decode(), said) == (BODY, notes)


def test_lost_backslash_is_the_likely_cause(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="ends at its first line break without a backslash"):
        curl.read(COMMAND.replace("\\\n", "\n"), tmp_path)
