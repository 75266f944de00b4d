"""Status, pinned headers and the shape of errors are the protocol's contracts."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_vllm_gates.contracts import checks, http_shapes
from pytest_vllm_gates.contracts.http_shapes import HTTP
from pytest_vllm_gates.contracts.types import ContractReply, HttpReply, Observed, load

PLAN = load()
JSON = "application/json"


def reply(
    *bodies: Any,
    status: int | None = 200,
    name: str = "HEAD",
    sent: dict[str, str] | None = None,
    received: dict[str, str] | None = None,
    pinned: tuple[str, ...] = (),
) -> HttpReply:
    found = ContractReply(name, status, JSON, bodies)
    return HttpReply(found, sent or {}, pinned, received or {})


def contract_lines(*replies: HttpReply) -> list[str]:
    return checks.lines(http_shapes.http(replies, PLAN))


def test_of_an_answer_status_and_type_are_pinned() -> None:
    assert contract_lines(reply({"id": "chat-1"})) == [
        "HEAD: HTTP status: 200",
        "HEAD: content type: application/json",
    ]


def test_of_a_refusal_the_shape_is_pinned_too() -> None:
    assert contract_lines(reply({"error": {"code": 405}}, status=405)) == [
        "HEAD: HTTP status: 405",
        "HEAD: content type: application/json",
        "HEAD: error: object",
        "HEAD: error.code: 405",
    ]


@pytest.mark.parametrize(
    ("value", "term"),
    [
        (None, "absent"),
        ("GET", '"GET"'),
        ("https://example.org", "echoed"),
        ("GET, POST", "present"),
        ("http://127.0.0.1:80/v1", "present"),
    ],
)
def test_header_is_pinned_by_value_or_by_presence(value: str | None, term: str) -> None:
    received = {} if value is None else {"allow": value}
    (*_, line) = contract_lines(
        reply(sent={"Origin": "https://example.org"}, received=received, pinned=("allow",))
    )
    assert line == f"HEAD: header allow: {term}"


def test_a_request_id_is_looked_for_in_the_answers_id() -> None:
    sent = {"X-Request-Id": "gates-1"}
    assert contract_lines(reply({"id": "chatcmpl-gates-1"}, sent=sent))[-1] == "HEAD: id: echoed"
    assert contract_lines(reply({"id": "chatcmpl-7"}, sent=sent))[-1] == "HEAD: id: absent"


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_pinned_by_retry_after(status: int) -> None:
    assert contract_lines(reply(status=status))[-1] == "HEAD: header retry-after: absent"
    told = reply(status=status, received={"retry-after": "7"})
    assert contract_lines(told)[-1] == "HEAD: header retry-after: present"


def test_a_connection_is_kept_or_closed() -> None:
    replies = [HttpReply(ContractReply("two", None), reused=reused) for reused in (True, False)]
    assert contract_lines(replies[0]) == ["two: connection: kept"]
    assert contract_lines(replies[1]) == ["two: connection: closed"]


def observed(*replies: HttpReply) -> Observed:
    return Observed(
        routes={}, listed=True, metrics=None, answers=(), refusals=(), model="m", http=replies
    )


def broken(recorded: HttpReply, now: HttpReply) -> list[str]:
    before, after = (http_shapes.http([each], PLAN) for each in (recorded, now))
    pinned = checks.judgeable(HTTP, before, observed(now), PLAN)
    findings, _ = checks.broken(HTTP, pinned, after, [now.reply])
    return [finding.says for finding in findings]


def test_another_status_or_header_is_a_finding() -> None:
    allowed = reply(received={"allow": "GET"}, pinned=("allow",))
    assert broken(allowed, allowed) == []
    assert broken(allowed, reply(pinned=("allow",))) == [
        'HEAD: header allow is absent and was "GET"'
    ]
    assert broken(reply(), reply(status=404)) == ["HEAD: HTTP status is 404 and was 200"]


def test_a_header_that_comes_anew_is_drift() -> None:
    before = reply(pinned=("x-request-id",))
    now = reply(received={"x-request-id": "7"}, pinned=("x-request-id",))
    assert broken(before, now) == []
    contracts = [http_shapes.http([each], PLAN) for each in (before, now)]
    assert checks.drift(HTTP, *contracts) == [
        {
            "where": "http",
            "name": "HEAD: header x-request-id",
            "ours": '"7"',
            "theirs": "absent",
        }
    ]


def test_a_request_that_was_not_sent_is_not_judged() -> None:
    before = http_shapes.http([reply(name="no scheme")], PLAN)
    assert checks.judgeable(HTTP, before, observed(reply()), PLAN) == {}


def test_all_is_recorded_and_read_back() -> None:
    contracts = http_shapes.http([reply(pinned=("allow",)), reply(name="OPTIONS")], PLAN)
    text = checks.written(HTTP, "Qwen", checks.pinnable(HTTP, contracts))
    assert checks.parsed(text) == contracts
