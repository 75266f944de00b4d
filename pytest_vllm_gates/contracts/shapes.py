"""Derives the contracts of a server from its observation: names and types, no values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_vllm_gates.contracts.types import ContractPlan, ContractReply, Metric, Observed

Contracts = Mapping[str, tuple[str, ...]]
"""The terms of each contract by its name; the first term of a metric is its type."""

ROUTES, METRICS, FIELDS, ERRORS = "routes", "metrics", "fields", "errors"
UNKNOWN = "…"
"""The placeholder for the labels of a metric without a sample."""
STATUS, KIND, BODY = "HTTP status", "content type", "whole body"
NO_ANSWER, NO_JSON = "no answer", "no JSON"
OK = "200"
NULL = "null"
STREAM = "event-stream"
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array",
         dict: "object", type(None): NULL}  # fmt: skip
WORD = re.compile(r"[A-Za-z][\w .-]{0,40}")
MESSAGES = ("message", "detail")
MESSAGE_CHARACTERS = 160


def routes(observed: Observed) -> Contracts:
    """Return the methods of every route."""
    return {path: tuple(sorted(methods)) for path, methods in sorted(observed.routes.items())}


def metrics(families: Mapping[str, Metric], plan: ContractPlan) -> Contracts:
    """Return type and labels of every metric that may be pinned."""
    return {
        name: (metric.type, *((UNKNOWN,) if metric.labels is None else metric.labels))
        for name, metric in sorted(families.items())
        if not plan.left_out.search(name)
    }


def replies(replies_sent: Iterable[ContractReply], plan: ContractPlan) -> Contracts:
    """Return status, content type and the fields' types of replies, joined by name.

    The first chunk of a stream and the one with the usage are named separately. How the text is
    split into the others is not a contract, nor which of them leave a field null.
    """
    terms: dict[str, set[str]] = {}
    now_and_then_null: set[str] = set()
    for reply in replies_sent:
        for contract, term in _terms_of(reply, plan):
            name = " ".join(contract.split())
            terms.setdefault(name, set()).add(term)
            if STREAM in reply.kind or name.rpartition(".")[2] in plan.nullable:
                now_and_then_null.add(name)
    for name in now_and_then_null:
        terms[name] = terms[name] - {NULL} or terms[name]
    terms = {name: kinds for name, kinds in terms.items() if not plan.left_out.search(name)}
    order = list(dict.fromkeys(name.partition(": ")[0] for name in terms))
    names = sorted(terms, key=lambda name: (order.index(name.partition(": ")[0]), *_place(name)))
    return {name: tuple(sorted(terms[name], key=_order)) for name in names}


def messages(refusals: Iterable[ContractReply], model: str) -> Iterator[str]:
    """Yield the messages of refusals, without numbers and models' names, for people to compare."""
    for reply in refusals:
        text = next(_messages(reply.bodies), None)
        if text:
            text = re.sub(r"[\d.,]*\d", "N", text.replace(model, "MODEL"))
            yield f"{reply.name}: says: {' '.join(text.split())[:MESSAGE_CHARACTERS]}"


def request_name(name: str) -> str:
    """Return the name of a contract's request; for a route or metric its own name."""
    return name.partition(": ")[0].partition(", ")[0]


def _terms_of(reply: ContractReply, plan: ContractPlan) -> Iterator[tuple[str, str]]:
    yield f"{reply.name}: {STATUS}", NO_ANSWER if reply.status is None else str(reply.status)
    if reply.status is None:
        return
    yield f"{reply.name}: {KIND}", reply.kind or "none"
    if reply.bodies is None:
        yield f"{reply.name}: {BODY}", NO_JSON
    for number, body in enumerate(reply.bodies or ()):
        name = reply.name
        if STREAM in reply.kind and isinstance(body, dict):
            name += _chunk(body, number)
        if isinstance(body, dict) and body:
            for key, value in body.items():
                yield from _fields(f"{name}: {key}", value, plan, key)
        else:
            yield f"{name}: {BODY}", _type(body)


def _chunk(body: dict[str, Any], number: int) -> str:
    """Return the suffix that names a chunk of a stream; '' for those in its middle."""
    if not body.get("choices") and body.get("usage"):
        return ", usage chunk"
    choices = body.get("choices") or [{}]
    first = choices[0] if isinstance(choices, list) and isinstance(choices[0], dict) else {}
    delta = first.get("delta")
    return ", first chunk" if number == 0 and isinstance(delta, dict) and "role" in delta else ""


def _fields(name: str, value: Any, plan: ContractPlan, key: str = "") -> Iterator[tuple[str, str]]:
    yield name, _term(value, constant=key in plan.constants)
    if isinstance(value, list):
        for element in value:
            yield from _fields(f"{name}[]", element, plan)
    elif isinstance(value, dict):
        is_map = name.partition(": ")[2] in plan.maps
        for inner, element in value.items():
            yield from _fields(f"{name}{{}}" if is_map else f"{name}.{inner}", element, plan, inner)


def _term(value: Any, *, constant: bool) -> str:
    plain = isinstance(value, str) and WORD.fullmatch(value) is not None
    if constant and (plain or type(value) is int):
        return json.dumps(value)
    return _type(value)


def _type(value: Any) -> str:
    return TYPES[type(value)]


def _place(name: str) -> tuple[int, str]:
    """Return the sort key of a contract among those of its reply: fields come last."""
    path = name.partition(": ")[2]
    return (STATUS, KIND, BODY, path).index(path), path


def _order(term: str) -> tuple[bool, str]:
    return term == NULL, term


def _messages(value: Any) -> Iterator[str]:
    """Yield the texts of an error, outermost first."""
    if isinstance(value, list | tuple):
        for element in value:
            yield from _messages(element)
    elif isinstance(value, dict):
        yield from (value[key] for key in MESSAGES if isinstance(value.get(key), str))
        for element in value.values():
            yield from _messages(element)
