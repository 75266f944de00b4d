"""Checks the flags, variables and requests that a replay takes from an incident.

An incident may come from a stranger. Everything that `data/replay.toml` does not allow by name,
type and range is refused.
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
    """Yield the settings of an incident's lane that are not allowed."""
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
    """Return what is wrong with a flag; '' if it is allowed, a blank if it has no rule."""
    return _fault(rules.serve.get(name.replace("-", "_")), value)


def variable_fault(name: str, value: str, rules: LaneRules) -> str:
    """Return what is wrong with a variable; '' and a blank mean the same as for a flag."""
    rule = rules.env.get(name)
    return _fault(rule, _number(value) if rule and rule.kind == "integer" else value)


def route_faults(sends: Iterable[Send | Sent], rules: RouteRules) -> Iterator[str]:
    """Yield method and path of each request of an incident that is not inference."""
    allowed = {"GET": rules.get, "POST": rules.post}
    for send in sends:
        if send.path not in allowed.get(send.method, ()):
            yield f"{excerpt(send.method)} {excerpt(send.path)}"


def _fault(rule: ValueRule | None, value: Any) -> str:
    """Return what is wrong with a value; '' if its rule allows it, a blank if it has no rule."""
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
    """Return a variable's value as an integer, or unchanged if it is not one."""
    return int(value) if re.fullmatch(r"[0-9]{1,9}", value) else value


def excerpt(value: object) -> str:
    """Return a value as a message shows it: a long value is cut at the end."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def described(lane: Lane) -> Iterator[str]:
    """Yield the flags and variables that an incident's lane is booted with."""
    values: Mapping[str, Mapping[str, Any]] = {"serve": lane.serve, "env": lane.env}
    for table, entries in values.items():
        if entries:
            yield f"{table}: " + ", ".join(f"{name}={value}" for name, value in entries.items())
