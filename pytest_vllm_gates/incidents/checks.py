"""What an incident may have served and sent: its lane's flags and variables, its requests.

An incident may come from a stranger. Everything is refused that `data/replay.toml` does not allow
by name, type and range.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.incidents.types import LaneRules, RouteRules, Send, ValueRule

NAME = re.compile(r"\w[\w.-]{0,63}")
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
CHECKPOINTS = (None, "miniature")
SHOWN = 60


def lane_faults(lane: Lane, rules: LaneRules) -> Iterator[str]:
    """Yield what an incident's lane sets and may not set."""
    if not NAME.fullmatch(lane.name):
        yield f"name {excerpt(lane.name)}"
    if lane.checkpoint not in CHECKPOINTS:
        yield f"checkpoint {excerpt(lane.checkpoint)}"
    for name, value in lane.env.items():
        if fault := variable_fault(name, value, rules):
            yield f"env {name}{fault}"
    for name, value in lane.serve.items():
        if fault := flag_fault(name, value, rules):
            yield f"serve {name}{fault}"


def flag_fault(name: str, value: Any, rules: LaneRules) -> str:
    """Return what is wrong with a flag; '' where it is allowed, a blank where no rule knows it."""
    return _fault(rules.serve.get(name.replace("-", "_")), value)


def variable_fault(name: str, value: str, rules: LaneRules) -> str:
    """Return what is wrong with a variable; '' and a blank as for a flag."""
    rule = rules.env.get(name)
    return _fault(rule, _number(value) if rule and rule.kind == "integer" else value)


def route_faults(sends: Iterable[Send | Sent], rules: RouteRules) -> Iterator[str]:
    """Yield the requests of an incident that are not inference, by method and path."""
    allowed = {"GET": rules.get, "POST": rules.post}
    for send in sends:
        if send.path not in allowed.get(send.method, ()):
            yield f"{excerpt(send.method)} {excerpt(send.path)}"


def _fault(rule: ValueRule | None, value: Any) -> str:
    """Return what is wrong with a value; '' where its rule allows it, a blank where it has none."""
    if rule is None:
        return " "
    if rule.kind == "switch":
        allowed = isinstance(value, bool)
        expected = "true or false"
    elif rule.kind == "word":
        allowed = isinstance(value, str) and bool(WORD.fullmatch(value))
        allowed = allowed and (not rule.words or value in rule.words)
        expected = f"one of {', '.join(rule.words)}" if rule.words else "one word"
    elif rule.kind == "pattern":
        allowed = isinstance(value, str) and bool(re.fullmatch(rule.pattern, value))
        expected = rule.pattern
    else:
        number = isinstance(value, int) or (rule.kind == "number" and isinstance(value, float))
        allowed = (
            number
            and not isinstance(value, bool)
            and math.isfinite(value)
            and rule.least <= value <= rule.most
        )
        expected = f"{rule.kind} from {rule.least:g} to {rule.most:g}"
    return "" if allowed else f" = {excerpt(value)} (allowed: {expected})"


def _number(value: str) -> int | str:
    """Return a variable's value as the whole number that it spells; itself where it spells none."""
    return int(value) if re.fullmatch(r"[0-9]{1,9}", value) else value


def excerpt(value: object) -> str:
    """Return a value as a message shows it: its beginning, where it is long."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def described(lane: Lane) -> Iterator[str]:
    """Yield the flags and variables with which an incident's lane is booted."""
    values: Mapping[str, Mapping[str, Any]] = {"serve": lane.serve, "env": lane.env}
    for table, entries in values.items():
        if entries:
            yield f"{table}: " + ", ".join(f"{name}={value}" for name, value in entries.items())
