"""Compares the contracts of a server with the recorded ones.

Contracts that are not in a golden are not pinned. A contract that is gone or of another type is a
finding; a new one is drift.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog.toml import nearest
from pytest_vllm_gates.contracts.http_shapes import ABSENT, HTTP
from pytest_vllm_gates.contracts.shapes import (
    FIELDS,
    METRICS,
    NULL,
    OK,
    ROUTES,
    STATUS,
    UNKNOWN,
    Contracts,
    request_name,
)
from pytest_vllm_gates.goldens import END, VERSION, CorruptGolden
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_vllm_gates.contracts.types import ContractPlan, ContractReply, Observed

NOTE = "# What nobody relies on may go: a line that is not here is not pinned."
SEPARATOR = ": "
BELOW = (".", "[", "{")
"""The characters that continue the path of a field below another one."""


def written(kind: str, title: str, contracts: Contracts) -> str:
    """Lay out contracts as a golden, one line each."""
    head = [f"{VERSION}: contracts, {kind}: {title}", "", NOTE, ""]
    return "\n".join([*head, *lines(contracts), "", END, ""])


def lines(contracts: Contracts) -> list[str]:
    """Return a line for each contract: its name and its terms."""
    return [f"{name}{SEPARATOR}{', '.join(terms)}" for name, terms in contracts.items()]


def parsed(text: str) -> Contracts:
    """Read what `written` lays out; raises `CorruptGolden` for an invalid line."""
    contracts: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines()[1:-1]:
        if not line.strip() or line.startswith("#"):
            continue
        name, _, terms = line.rpartition(SEPARATOR)
        if not name or not terms.strip():
            raise CorruptGolden(f"the line {line!r} is not a contract (a name and its terms)")
        contracts[name] = tuple(term.strip() for term in terms.split(","))
    return contracts


def pinnable(kind: str, now: Contracts) -> Contracts:
    """Return the contracts to record: no refused answers, and no fields that are always null."""
    if kind in (ROUTES, METRICS):
        return now
    answered = {
        request_name(name) for name, terms in now.items() if _is_status(name) and terms == (OK,)
    }
    return {
        name: terms
        for name, terms in now.items()
        if {*terms} != {NULL} and (kind != FIELDS or request_name(name) in answered)
    }


def judgeable(kind: str, recorded: Contracts, observed: Observed, plan: ContractPlan) -> Contracts:
    """Return the recorded contracts that can be judged: those of requests that were sent."""
    if kind == METRICS or (kind == ROUTES and observed.listed):
        return recorded
    if kind == ROUTES:
        known = {
            path: tuple(method for method in methods if f"{method} {path}" in plan.routes)
            for path, methods in recorded.items()
        }
        return {path: methods for path, methods in known.items() if methods}
    protocol = [each.reply for each in observed.http]
    names = {reply.name for reply in (*observed.answers, *observed.refusals, *protocol)}
    if kind == HTTP:
        # An absent field is pinned for people to see; when it appears, it breaks no client.
        recorded = {name: terms for name, terms in recorded.items() if terms != (ABSENT,)}
    return {name: terms for name, terms in recorded.items() if request_name(name) in names}


def broken(
    kind: str, recorded: Contracts, now: Contracts, replies: Sequence[ContractReply] = ()
) -> tuple[list[Finding], list[Case]]:
    """Find the broken contracts; return them with all cases.

    If several `replies` have one name, the case has the first one's request.
    """
    find = {ROUTES: _routes, METRICS: _metrics}.get(kind, _fields)
    requests = {reply.name: reply.request for reply in reversed(replies)}
    cases = {
        name: Case(name, {"contract": name}, requests.get(name))
        for name in map(request_name, recorded)
    }
    findings = [
        Finding(cases[request_name(name)], sentence) for name, sentence in find(recorded, now)
    ]
    return findings, list(cases.values())


def drift(kind: str, recorded: Contracts, now: Contracts) -> list[dict[str, Any]]:
    """Return changes that break no client: `theirs` as recorded, `ours` as now."""
    broken_by = _lost if kind in (ROUTES, METRICS) else _foreign
    changes = []
    for name, terms in now.items():
        before = recorded.get(name, ())
        added = before == (ABSENT,)
        if {*terms} <= {*before} or (before and not added and broken_by(before, terms)):
            continue
        ours, theirs = (", ".join(listed) or None for listed in (terms, before))
        changes.append({"where": kind, "name": name, "ours": ours, "theirs": theirs})
    return changes


def _routes(recorded: Contracts, now: Contracts) -> Iterator[tuple[str, str]]:
    for path, methods in recorded.items():
        for method in _lost(methods, now.get(path, ())):
            hint = _hint(path, (new for new in now.keys() - recorded if method in now[new]))
            sentence = f"{method} {path} is gone: requests to it are refused{hint}"
            yield path, sentence


def _metrics(recorded: Contracts, now: Contracts) -> Iterator[tuple[str, str]]:
    if recorded and not now:
        sentence = "the server exposes no metrics at all: every dashboard is empty"
        yield next(iter(recorded)), sentence
        return
    for name, terms in recorded.items():
        metric_type = terms[0]
        if name not in now:
            hint = _hint(name, (new for new in now.keys() - recorded if now[new][0] == metric_type))
            sentence = f"the metric {name} is gone: dashboards that use it show nothing{hint}"
            yield name, sentence
            continue
        for term in _lost(terms, now[name]):
            if term == metric_type:
                sentence = (
                    f"{name} is a {now[name][0]} and was a {metric_type}: "
                    "its queries mean something else"
                )
            else:
                hint = _hint(term, {*now[name][1:]} - {*terms})
                sentence = (
                    f"{name} has no label {term}: queries that select or group by it fail{hint}"
                )
            yield name, sentence


def _fields(recorded: Contracts, now: Contracts) -> Iterator[tuple[str, str]]:
    replies = {_reply(name) for name in now}
    reported: list[str] = []
    """Prefixes of names that an earlier finding covers."""
    for name in sorted(recorded, key=_status_first):
        if any(name.startswith(prefix) for prefix in reported):
            continue
        if _reply(name) not in replies:
            reported.append(_reply(name) + SEPARATOR)
            sentence = f"no {_reply(name)} came: clients wait for it in vain"
        elif name not in now:
            reported += [name + suffix for suffix in BELOW]
            sentence = (
                f"{name} is gone: clients that read it find nothing{_renamed(name, recorded, now)}"
            )
        elif _foreign(recorded[name], now[name]):
            reported += [name + suffix for suffix in BELOW]
            if _is_status(name):
                reported += [request_name(name) + suffix for suffix in (SEPARATOR, ",")]
            sentence = f"{name} is {' or '.join(now[name])} and was {' or '.join(recorded[name])}"
        else:
            continue
        yield name, sentence


def _lost(recorded: Sequence[str], now: Sequence[str]) -> list[str]:
    """Return the recorded terms that are gone; unknown labels do not count."""
    offered = recorded[:1] if UNKNOWN in now else recorded
    return [term for term in offered if term not in (*now, UNKNOWN)]


def _foreign(recorded: Sequence[str], now: Sequence[str]) -> list[str]:
    """Return the terms that break a client: another type, or always null."""
    if {*now} == {NULL} != {*recorded}:
        return [NULL]
    return [term for term in now if not {term, _wider(term)} & {*recorded}]


def _wider(term: str) -> str:
    """Return the wider type that covers a term."""
    if term.startswith('"'):
        return "string"
    return "integer" if term.lstrip("-").isdigit() else "number" if term == "integer" else term


def _renamed(name: str, recorded: Contracts, now: Contracts) -> str:
    """Return a hint about the new name of a field, from the new fields in the same object."""
    parent, key = _parent(name)
    new = map(_parent, now.keys() - recorded)
    return _hint(key, (key_now for above, key_now in new if above == parent))


def _parent(name: str) -> tuple[str, str]:
    """Return the name of a field's object, and its key there."""
    reply, _, path = name.partition(SEPARATOR)
    above, _, key = path.rpartition(".")
    return f"{reply}{SEPARATOR}{above}", key


def _hint(name: str, new: Iterable[str]) -> str:
    guess = nearest(name, sorted(new))
    return f"; perhaps it is {guess} now" if guess else ""


def _reply(name: str) -> str:
    return name.partition(SEPARATOR)[0]


def _is_status(name: str) -> bool:
    return name.endswith(SEPARATOR + STATUS)


def _status_first(name: str) -> tuple[str, bool, str]:
    return request_name(name), not _is_status(name), name
