"""Derives the contracts of the protocol from replies: status, headers, the shape of an error."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_vllm_gates.contracts import shapes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_vllm_gates.contracts.types import ContractPlan, HttpReply

HTTP = "http"
ABSENT, PRESENT, ECHOED, KEPT, CLOSED = "absent", "present", "echoed", "kept", "closed"
HEADER, CONNECTION, ID = "header", "connection", "id"
REFUSED = 400
BUSY = (429, 503)
RETRY_AFTER = "retry-after"
REQUEST_ID = "x-request-id"
VALUE = re.compile(r"[\w./;=*-]{1,60}")
"""A header's value that is pinned unchanged; for others only their presence is pinned."""


def http(replies: Iterable[HttpReply], plan: ContractPlan) -> shapes.Contracts:
    """Return the contracts of every reply: an error's body, then the headers."""
    contracts: dict[str, tuple[str, ...]] = {}
    for each in replies:
        if each.reused is not None:
            term = KEPT if each.reused else CLOSED
            contracts[f"{each.reply.name}: {CONNECTION}"] = (term,)
            continue
        refused = each.reply.status is not None and each.reply.status >= REFUSED
        shaped = each.reply if refused else replace(each.reply, bodies=())
        contracts |= shapes.replies([shaped], plan)
        if each.reply.status is not None:
            contracts |= {f"{each.reply.name}: {name}": (term,) for name, term in _terms(each)}
    return contracts


def _terms(each: HttpReply) -> Iterator[tuple[str, str]]:
    sent = {name.lower(): value for name, value in each.sent.items()}
    for name in each.pinned:
        yield f"{HEADER} {name}", _term(each.received.get(name), {*sent.values()})
    if each.reply.status in BUSY:
        yield f"{HEADER} {RETRY_AFTER}", PRESENT if RETRY_AFTER in each.received else ABSENT
    if requested := sent.get(REQUEST_ID):
        bodies = each.reply.bodies or ()
        ids = [str(body.get("id")) for body in bodies if isinstance(body, dict)]
        yield ID, ECHOED if any(requested in text for text in ids) else ABSENT


def _term(value: str | None, sent: set[str]) -> str:
    if value is None:
        return ABSENT
    if value in sent:
        return ECHOED
    return json.dumps(value) if VALUE.fullmatch(value) else PRESENT
