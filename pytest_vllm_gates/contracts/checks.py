"""Is everything still there that clients and dashboards rely on, and of the same type?

What a golden does not hold is not pinned. What is gone or of another type is a finding; what is
new is drift.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog.toml import nearest
from pytest_vllm_gates.contracts.shapes import (
    FIELDS,
    METRICS,
    NULL,
    OK,
    ROUTES,
    STATUS,
    UNKNOWN,
    Contracts,
    asked,
)
from pytest_vllm_gates.goldens import END, VERSION, CorruptGolden
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_vllm_gates.contracts.types import ContractPlan, ContractReply, Observed

NOTE = "# What nobody relies on may go: a line that is not here is not pinned."
SEPARATOR = ": "
BELOW = (".", "[", "{")
"""How the path of a field goes on below another one's."""


def written(what: str, title: str, contracts: Contracts) -> str:
    """Lay out contracts as a golden, one line each."""
    head = [f"{VERSION}: contracts, {what}: {title}", "", NOTE, ""]
    return "\n".join([*head, *lines(contracts), "", END, ""])


def lines(contracts: Contracts) -> list[str]:
    """Return a line for each contract: its name and its terms."""
    return [f"{name}{SEPARATOR}{', '.join(terms)}" for name, terms in contracts.items()]


def parsed(text: str) -> Contracts:
    """Read what `written` lays out; raises `CorruptGolden` for a line that is no contract."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines()[1:-1]:
        if not line.strip() or line.startswith("#"):
            continue
        name, _, terms = line.rpartition(SEPARATOR)
        if not name or not terms.strip():
            raise CorruptGolden(f"the line {line!r} is no contract, which is a name and its terms")
        found[name] = tuple(term.strip() for term in terms.split(","))
    return found


def pinnable(what: str, now: Contracts) -> Contracts:
    """Return what is worth a golden: no answers that were refused, and nothing always null."""
    if what in (ROUTES, METRICS):
        return now
    given = {asked(name) for name, terms in now.items() if _is_status(name) and terms == (OK,)}
    return {
        name: terms
        for name, terms in now.items()
        if {*terms} != {NULL} and (what != FIELDS or asked(name) in given)
    }


def judgeable(what: str, recorded: Contracts, observed: Observed, plan: ContractPlan) -> Contracts:
    """Return what of a golden can be judged: what this server was asked for, or told of itself."""
    if what == METRICS or (what == ROUTES and observed.listed):
        return recorded
    if what == ROUTES:
        known = {
            path: tuple(method for method in methods if f"{method} {path}" in plan.routes)
            for path, methods in recorded.items()
        }
        return {path: methods for path, methods in known.items() if methods}
    names = {reply.name for reply in (*observed.answers, *observed.refusals)}
    return {name: terms for name, terms in recorded.items() if asked(name) in names}


def broken(
    what: str, recorded: Contracts, now: Contracts, replies: Sequence[ContractReply] = ()
) -> tuple[list[Finding], list[Case]]:
    """Find the contracts that are not kept; all that were looked at come with them.

    Of several `replies` of one name the first shows what was asked.
    """
    find = {ROUTES: _routes, METRICS: _metrics}.get(what, _fields)
    requests = {reply.name: reply.request for reply in reversed(replies)}
    cases = {
        name: Case(name, {"contract": name}, requests.get(name)) for name in map(asked, recorded)
    }
    findings = [Finding(cases[asked(name)], says) for name, says in find(recorded, now)]
    return findings, list(cases.values())


def drift(what: str, recorded: Contracts, now: Contracts) -> list[dict[str, Any]]:
    """Return what is new and breaks nobody; `theirs` is what was recorded, `ours` what is now."""
    broken_by = _lost if what in (ROUTES, METRICS) else _foreign
    found = []
    for name, terms in now.items():
        before = recorded.get(name, ())
        if {*terms} <= {*before} or (before and broken_by(before, terms)):
            continue
        ours, theirs = (", ".join(some) or None for some in (terms, before))
        found.append({"where": what, "name": name, "ours": ours, "theirs": theirs})
    return found


def _routes(recorded: Contracts, now: Contracts) -> Iterator[tuple[str, str]]:
    for path, methods in recorded.items():
        for method in _lost(methods, now.get(path, ())):
            hint = _hint(path, (new for new in now.keys() - recorded if method in now[new]))
            says = f"{method} {path} is gone: whoever asks for it is refused{hint}"
            yield path, says


def _metrics(recorded: Contracts, now: Contracts) -> Iterator[tuple[str, str]]:
    if recorded and not now:
        says = "the server tells no metrics at all: every dashboard is empty"
        yield next(iter(recorded)), says
        return
    for name, terms in recorded.items():
        kind = terms[0]
        if name not in now:
            hint = _hint(name, (new for new in now.keys() - recorded if now[new][0] == kind))
            says = f"the metric {name} is gone: dashboards that use it show nothing{hint}"
            yield name, says
            continue
        for term in _lost(terms, now[name]):
            if term == kind:
                says = (
                    f"{name} is a {now[name][0]} and was a {kind}: its queries mean something else"
                )
            else:
                hint = _hint(term, {*now[name][1:]} - {*terms})
                says = f"{name} has no label {term}: queries that select or group by it fail{hint}"
            yield name, says


def _fields(recorded: Contracts, now: Contracts) -> Iterator[tuple[str, str]]:
    come = {_reply(name) for name in now}
    told: list[str] = []
    """Beginnings of names of which nothing more is to be said."""
    for name in sorted(recorded, key=_status_first):
        if any(name.startswith(text) for text in told):
            continue
        if _reply(name) not in come:
            told.append(_reply(name) + SEPARATOR)
            says = f"no {_reply(name)} came: clients wait for it in vain"
        elif name not in now:
            told += [name + more for more in BELOW]
            says = (
                f"{name} is gone: clients that read it find nothing{_renamed(name, recorded, now)}"
            )
        elif _foreign(recorded[name], now[name]):
            told += [name + more for more in BELOW]
            if _is_status(name):
                told += [asked(name) + more for more in (SEPARATOR, ",")]
            says = f"{name} is {' or '.join(now[name])} and was {' or '.join(recorded[name])}"
        else:
            continue
        yield name, says


def _lost(recorded: Sequence[str], now: Sequence[str]) -> list[str]:
    """Return what was offered and is not any more; what nobody knows yet is not lost."""
    offered = recorded[:1] if UNKNOWN in now else recorded
    return [term for term in offered if term not in (*now, UNKNOWN)]


def _foreign(recorded: Sequence[str], now: Sequence[str]) -> list[str]:
    """Return what comes now and a client is not prepared for: another type, or always null."""
    if {*now} == {NULL} != {*recorded}:
        return [NULL]
    return [term for term in now if not {term, _wider(term)} & {*recorded}]


def _wider(term: str) -> str:
    """Return the type that a client takes a term for, who takes more than that term."""
    if term.startswith('"'):
        return "string"
    return "integer" if term.lstrip("-").isdigit() else "number" if term == "integer" else term


def _renamed(name: str, recorded: Contracts, now: Contracts) -> str:
    """Return under which name a field may be found now, of those that are new beside it."""
    parent, key = _parent(name)
    new = map(_parent, now.keys() - recorded)
    return _hint(key, (other for beside, other in new if beside == parent))


def _parent(name: str) -> tuple[str, str]:
    """Return what a field is in, and its key there."""
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
    return asked(name), not _is_status(name), name
