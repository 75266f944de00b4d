"""Removed or retyped contracts are reported with their effect on users; new ones are drift."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as some

from pytest_vllm_gates.contracts import checks
from pytest_vllm_gates.contracts.shapes import (
    ERRORS,
    FIELDS,
    METRICS,
    ROUTES,
    Contracts,
    replies as of,
)
from pytest_vllm_gates.contracts.types import ContractReply, Observed, load
from pytest_vllm_gates.goldens import CorruptGolden

PLAN = load()
KINDS = (ROUTES, METRICS, FIELDS, ERRORS)
ROUTE = {"/ping": ("GET", "POST"), "/tokenize": ("POST",)}
METRIC = {"vllm:kv_cache_usage_perc": ("gauge", "engine"), "vllm:hits_total": ("counter",)}
FIELD = {
    "chat: HTTP status": ("200",),
    "chat: usage": ("object",),
    "chat: usage.prompt_tokens": ("integer",),
    "chat: usage.total_tokens": ("integer",),
    "chat: content": ("string", "null"),
    "stream, usage chunk: usage": ("object",),
}
ERROR = {
    "unknown model: HTTP status": ("404",),
    "unknown model: error": ("object",),
    "unknown model: error.type": ('"NotFoundError"',),
}


def sentences(kind: str, recorded: Contracts, now: Contracts) -> list[str]:
    return [finding.says for finding in checks.broken(kind, recorded, now)[0]]


def changed(contracts: Contracts, **now: Any) -> Contracts:
    """Return contracts with some of other terms, or without them."""
    merged = {**contracts, **now}
    return {name: terms for name, terms in merged.items() if terms}


def test_a_golden_reads_back() -> None:
    every: tuple[Contracts, ...] = (ROUTE, METRIC, FIELD, ERROR)
    for kind, contracts in zip(KINDS, every, strict=True):
        text = checks.written(kind, "Qwen", contracts)
        assert checks.parsed(text) == contracts
        assert sentences(kind, contracts, contracts) == []
        assert checks.drift(kind, contracts, contracts) == []


def test_a_line_without_terms_is_corrupt() -> None:
    text = checks.written(ROUTES, "Qwen", ROUTE).replace("/tokenize: POST", "/tokenize")
    with pytest.raises(CorruptGolden, match="the line '/tokenize' is not a contract"):
        checks.parsed(text)


@pytest.mark.parametrize("kind", KINDS)
def test_only_contracts_in_the_golden_are_pinned(kind: str) -> None:
    assert sentences(kind, {}, {"anything": ("x",)}) == []
    assert checks.drift(kind, {}, {"anything": ("x", "y")}) == [
        {"where": kind, "name": "anything", "ours": "x, y", "theirs": None}
    ]


def test_missing_routes_and_methods_are_findings() -> None:
    now = changed(ROUTE, **{"/ping": ("GET",), "/tokenize": (), "/v1/tokenize": ("POST",)})
    assert sentences(ROUTES, ROUTE, now) == [
        "POST /ping is gone: requests to it are refused",
        "POST /tokenize is gone: requests to it are refused; perhaps it is /v1/tokenize now",
    ]


def test_missing_and_changed_metrics_are_findings() -> None:
    renamed = changed(
        METRIC, **{"vllm:kv_cache_usage_perc": (), "vllm:gpu_cache_usage_perc": ("gauge", "engine")}
    )
    assert sentences(METRICS, METRIC, renamed) == [
        "the metric vllm:kv_cache_usage_perc is gone: dashboards that use it show nothing; "
        "perhaps it is vllm:gpu_cache_usage_perc now"
    ]
    assert sentences(METRICS, METRIC, {"vllm:new": ("histogram",)}) == [
        "the metric vllm:kv_cache_usage_perc is gone: dashboards that use it show nothing",
        "the metric vllm:hits_total is gone: dashboards that use it show nothing",
    ]
    changed_metrics = {
        "vllm:kv_cache_usage_perc": ("counter", "engine_id"),
        "vllm:hits_total": ("counter",),
    }
    assert sentences(METRICS, METRIC, changed_metrics) == [
        "vllm:kv_cache_usage_perc is a counter and was a gauge: its queries mean something else",
        "vllm:kv_cache_usage_perc has no label engine: queries that select or group by it fail; "
        "perhaps it is engine_id now",
    ]
    assert sentences(METRICS, METRIC, {}) == [
        "the server exposes no metrics at all: every dashboard is empty"
    ]


def test_labels_without_a_sample_are_not_missed() -> None:
    unseen = changed(METRIC, **{"vllm:kv_cache_usage_perc": ("gauge", "…")})
    assert sentences(METRICS, METRIC, unseen) == []
    assert sentences(METRICS, unseen, METRIC) == []


@pytest.mark.parametrize(
    ("recorded", "now", "difference"),
    [
        (("string",), ("null",), "is null and was string"),
        (("string",), ("string", "null"), "is string or null and was string"),
        (("string", "null"), ("null",), "is null and was string or null"),
        (("integer",), ("number",), "is number and was integer"),
        (('"NotFoundError"',), ('"not_found"',), 'is "not_found" and was "NotFoundError"'),
        (('"NotFoundError"',), ("string",), 'is string and was "NotFoundError"'),
        (("404",), ('"404"',), 'is "404" and was 404'),
        (("number",), ("boolean",), "is boolean and was number"),
        (("string",), ("-1",), "is -1 and was string"),
        (("integer",), ("-1",), ""),
        (("number",), ("integer",), ""),
        (("string", "null"), ("string",), ""),
        (("string",), ('"NotFoundError"',), ""),
        (("integer",), ("404",), ""),
        (("null",), ("null",), ""),
    ],
)
def test_a_field_of_another_type_is_a_finding(
    recorded: tuple[str, ...], now: tuple[str, ...], difference: str
) -> None:
    expected = [f"chat: usage {difference}"] if difference else []
    assert sentences(FIELDS, {"chat: usage": recorded}, {"chat: usage": now}) == expected


def test_fields_below_a_missing_field_are_not_reported() -> None:
    remaining = {name: terms for name, terms in FIELD.items() if not name.startswith("chat: usage")}
    assert sentences(FIELDS, FIELD, {**remaining, "chat: use": ("object",)}) == [
        "chat: usage is gone: clients that read it find nothing; perhaps it is use now"
    ]
    assert sentences(FIELDS, FIELD, {**remaining, "chat: usage": ("null",)}) == [
        "chat: usage is null and was object"
    ]


def test_the_hint_names_a_new_field_in_the_same_object() -> None:
    now = changed(
        FIELD, **{"chat: usage.prompt_tokens": (), "chat: usage.input_tokens": ("integer",),
                  "chat: prompt_tokens": ("integer",)},
    )  # fmt: skip
    assert sentences(FIELDS, FIELD, now) == [
        "chat: usage.prompt_tokens is gone: clients that read it find nothing; "
        "perhaps it is input_tokens now"
    ]


def test_a_missing_chunk_is_reported_once() -> None:
    now = {name: terms for name, terms in FIELD.items() if "usage chunk" not in name}
    assert sentences(FIELDS, FIELD, now) == [
        "no stream, usage chunk came: clients wait for it in vain"
    ]


def test_each_missing_field_is_reported_once() -> None:
    recorded: Contracts = {
        "chat: a": ("object",), "chat: a-z": ("object",), "chat: a.x": ("string",),
        "chat: b": ("object",), "chat: b-z": ("string",), "chat: b.x": ("string",),
        "chat: c: d": ("string",), "chat: e": ("string",),
        "refused: HTTP status": ("404",), "refused: error": ("object",),
        "score: data": ("array",), "score: id": ("string",), "tokenize: count": ("integer",),
    }  # fmt: skip
    now: Contracts = {
        "chat: b": ("null",), "chat: b-z": ("null",), "chat: e": ("string",),
        "refused: HTTP status": ("400",),
        "tokenize: tokens": ("array",),
    }  # fmt: skip
    assert sentences(FIELDS, recorded, now) == [
        "chat: a is gone: clients that read it find nothing",
        "chat: a-z is gone: clients that read it find nothing",
        "chat: b is null and was object",
        "chat: b-z is null and was string",
        "chat: c: d is gone: clients that read it find nothing",
        "refused: HTTP status is 400 and was 404",
        "no score came: clients wait for it in vain",
        "tokenize: count is gone: clients that read it find nothing",
    ]


def test_a_refused_stream_is_reported_once() -> None:
    recorded = {**FIELD, "stream: HTTP status": ("200",), "stream: id": ("string",)}
    now = {name: terms for name, terms in FIELD.items() if name.startswith("chat")}
    assert sentences(FIELDS, recorded, {**now, "stream: HTTP status": ("500",)}) == [
        "stream: HTTP status is 500 and was 200"
    ]


def test_another_status_hides_the_replys_fields() -> None:
    now = {"unknown model: HTTP status": ("400",), "unknown model: detail": ("string",)}
    assert sentences(ERRORS, ERROR, now) == ["unknown model: HTTP status is 400 and was 404"]


def test_findings_of_one_reply_are_one_case() -> None:
    now = {"unknown model: HTTP status": ("404",), "unknown model: whole body": ("no JSON",)}
    findings, cases = checks.broken(ERRORS, ERROR, now)
    assert [case.name for case in cases] == ["unknown model"]
    assert [(finding.case.name, finding.says) for finding in findings] == [
        ("unknown model", "unknown model: error is gone: clients that read it find nothing")
    ]
    assert cases[0].traits == {"contract": "unknown model"}


def test_a_finding_has_the_first_request_of_its_name() -> None:
    replies = [ContractReply("chat", 200, request={"body": n}) for n in (1, 2)]
    (finding,), _ = checks.broken(
        FIELDS, FIELD, changed(FIELD, **{"chat: usage": ("null",)}), replies
    )
    assert finding.case.request == {"body": 1}


def test_drift_is_new_and_breaks_no_client() -> None:
    assert checks.drift(ROUTES, ROUTE, {"/ping": ("GET",), "/tokenize": ("POST", "PUT")}) == [
        {"where": ROUTES, "name": "/tokenize", "ours": "POST, PUT", "theirs": "POST"}
    ]
    now = changed(FIELD, **{"chat: content": ("integer",), "chat: cost": ("number",)})
    assert checks.drift(FIELDS, FIELD, now) == [
        {"where": FIELDS, "name": "chat: cost", "ours": "number", "theirs": None}
    ]
    assert checks.drift(FIELDS, {"chat: a": ("string",)}, {"chat: a": ("string", "integer")}) == []
    assert checks.drift(FIELDS, {"chat: a": ("string", "null")}, {"chat: a": ('"x"',)}) == [
        {"where": FIELDS, "name": "chat: a", "ours": '"x"', "theirs": "string, null"}
    ]


def test_refused_and_always_null_fields_are_not_pinned() -> None:
    now: Contracts = {
        "chat: HTTP status": ("200",), "chat: audio": ("null",), "chat: id": ("string",),
        "version: HTTP status": ("404",), "version: detail": ("string",),
        "tokenize: HTTP status": ("200", "500"), "tokenize: count": ("integer",),
    }  # fmt: skip
    assert checks.pinnable(FIELDS, now) == {"chat: HTTP status": ("200",), "chat: id": ("string",)}
    assert checks.pinnable(ROUTES, ROUTE) == ROUTE
    assert checks.pinnable(METRICS, METRIC) == METRIC
    refused: Contracts = {"no key: HTTP status": ("401",), "no key: param": ("null",)}
    assert checks.pinnable(ERRORS, refused) == {"no key: HTTP status": ("401",)}


def test_only_contracts_of_sent_requests_are_judged() -> None:
    reply = ContractReply("chat", 200)
    observed = Observed({}, False, None, (reply,), (), "m")
    assert set(checks.judgeable(FIELDS, {**FIELD, **ERROR}, observed, PLAN)) == {
        name for name in FIELD if name.startswith("chat")
    }
    routes: Contracts = {"/health": ("GET",), "/load": ("GET",), "/tokenize": ("GET", "POST")}
    assert checks.judgeable(ROUTES, routes, observed, PLAN) == {
        "/health": ("GET",), "/tokenize": ("POST",),
    }  # fmt: skip
    listed = Observed({}, True, None, (), (), "m")
    assert checks.judgeable(ROUTES, routes, listed, PLAN) == routes


JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | some.text(),
    lambda inner: (
        some.lists(inner, max_size=3)
        | some.dictionaries(some.sampled_from("abcde") | some.text(min_size=1), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(some.lists(JSON, min_size=1, max_size=4))
def test_any_reply_can_be_recorded_and_then_passes(bodies: list[Any]) -> None:
    now = of([ContractReply("chat", 200, "application/json", tuple(bodies))], PLAN)
    recorded = checks.parsed(checks.written(FIELDS, "any", now))
    assert recorded == now
    assert sentences(FIELDS, recorded, now) == []
    assert checks.drift(FIELDS, recorded, now) == []


@given(some.dictionaries(some.sampled_from("abcdef"), JSON, min_size=2), some.data())
def test_new_fields_pass_and_missing_fields_are_findings(
    body: dict[str, Any], data: some.DataObject
) -> None:
    key = data.draw(some.sampled_from(sorted(body)))
    less = {name: value for name, value in body.items() if name != key}
    before, after = (
        of([ContractReply("chat", 200, "application/json", (body,))], PLAN) for body in (body, less)
    )
    assert sentences(FIELDS, after, before) == []
    assert any(f"chat: {key} is gone" in text for text in sentences(FIELDS, before, after))
