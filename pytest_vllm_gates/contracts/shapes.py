"""What a client or a dashboard can rely on of what a server says: names and types, no values."""

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
"""In place of the labels of a metric that has no sample yet."""
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


def metrics(told: Mapping[str, Metric], plan: ContractPlan) -> Contracts:
    """Return type and labels of every metric that may be pinned."""
    return {
        name: (metric.type, *((UNKNOWN,) if metric.labels is None else metric.labels))
        for name, metric in sorted(told.items())
        if not plan.left_out.search(name)
    }


def replies(found: Iterable[ContractReply], plan: ContractPlan) -> Contracts:
    """Return status, content type and the fields' types of replies, those of one name together.

    The first chunk of a stream and the one with the usage stand for themselves; how the others are
    cut is nobody's promise, nor which of them leave a field null.
    """
    terms: dict[str, set[str]] = {}
    now_and_then_null: set[str] = set()
    for reply in found:
        for told, term in _told(reply, plan):
            name = " ".join(told.split())
            terms.setdefault(name, set()).add(term)
            if STREAM in reply.kind or name.rpartition(".")[2] in plan.nullable:
                now_and_then_null.add(name)
    for name in now_and_then_null:
        terms[name] = terms[name] - {NULL} or terms[name]
    terms = {name: some for name, some in terms.items() if not plan.left_out.search(name)}
    order = list(dict.fromkeys(name.partition(": ")[0] for name in terms))
    names = sorted(terms, key=lambda name: (order.index(name.partition(": ")[0]), *_place(name)))
    return {name: tuple(sorted(terms[name], key=_order)) for name in names}


def messages(refusals: Iterable[ContractReply], model: str) -> Iterator[str]:
    """Yield what refusals say, without numbers and names of models: for people to compare."""
    for reply in refusals:
        text = next(_messages(reply.bodies), None)
        if text:
            text = re.sub(r"[\d.,]*\d", "N", text.replace(model, "MODEL"))
            yield f"{reply.name}: says: {' '.join(text.split())[:MESSAGE_CHARACTERS]}"


def asked(name: str) -> str:
    """Return the name of the request whose reply a contract is of; a route's or metric's own."""
    return name.partition(": ")[0].partition(", ")[0]


def _told(reply: ContractReply, plan: ContractPlan) -> Iterator[tuple[str, str]]:
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
    """Return how a chunk of a stream is called; nothing for those in its middle."""
    if not body.get("choices") and body.get("usage"):
        return ", usage chunk"
    choices = body.get("choices") or [{}]
    first = choices[0] if isinstance(choices, list) and isinstance(choices[0], dict) else {}
    delta = first.get("delta")
    return ", first chunk" if number == 0 and isinstance(delta, dict) and "role" in delta else ""


def _fields(name: str, value: Any, plan: ContractPlan, key: str = "") -> Iterator[tuple[str, str]]:
    yield name, _term(value, constant=key in plan.constants)
    if isinstance(value, list):
        for entry in value:
            yield from _fields(f"{name}[]", entry, plan)
    elif isinstance(value, dict):
        is_map = name.partition(": ")[2] in plan.maps
        for inner, entry in value.items():
            yield from _fields(f"{name}{{}}" if is_map else f"{name}.{inner}", entry, plan, inner)


def _term(value: Any, *, constant: bool) -> str:
    plain = isinstance(value, str) and WORD.fullmatch(value) is not None
    if constant and (plain or type(value) is int):
        return json.dumps(value)
    return _type(value)


def _type(value: Any) -> str:
    return TYPES[type(value)]


def _place(name: str) -> tuple[int, str]:
    """Return where a contract stands among those of its reply: what is no field comes first."""
    path = name.partition(": ")[2]
    return (STATUS, KIND, BODY, path).index(path), path


def _order(term: str) -> tuple[bool, str]:
    return term == NULL, term


def _messages(value: Any) -> Iterator[str]:
    """Yield the texts of an error, outermost first."""
    if isinstance(value, list | tuple):
        for entry in value:
            yield from _messages(entry)
    elif isinstance(value, dict):
        yield from (value[key] for key in MESSAGES if isinstance(value.get(key), str))
        for entry in value.values():
            yield from _messages(entry)
