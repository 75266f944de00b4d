"""Gives a replay the flags, variables and repairs of its incident, and lists what still differs.

An incident may come from a stranger. A value that differs from this machine's is used only if
`data/replay.toml` allows it; the other differences are listed, and this machine's values stay.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog import flags
from pytest_vllm_gates.incidents import checks, types
from pytest_vllm_gates.redaction.shown import redacted
from pytest_vllm_gates.redaction.values import REDACTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.incidents.types import Incident

    Fault = Callable[[str, Any], str]
    Change = tuple[str, Any, Any]

ABSENT = object()
"""The value of a flag or variable that is not set."""
OWN_VARIABLES = "VLLM_"
RUNS_ELSEWHERE = "a running server answers, with its own flags, variables and repairs"


@dataclass(frozen=True)
class Setup:
    """The family, checkpoint and lane that a server is started from."""

    family: Family
    checkpoint: Checkpoint
    lane: Lane

    @property
    def flags(self) -> dict[str, Any]:
        """The flags of family, checkpoint and lane together, as JSON has them."""
        return _json(flags.serving(self.family, self.checkpoint, self.lane))


def restored(incident: Incident, here: Setup) -> tuple[Setup, list[str]]:
    """Return the setup with the incident's flags and variables, and a note on what changed."""
    rules = types.load().lane
    then_flags, then_env, now_env = _flags(incident, here), *_variables(incident, here)
    kept_flags = _kept(
        _changes(then_flags, here.flags), lambda name, value: checks.flag_fault(name, value, rules)
    )
    kept_env = _kept(
        # A variable of this shell stays: a lane can set variables, but not remove them.
        [change for change in _changes(then_env, now_env) if _can_be_set(change, here)],
        lambda name, value: checks.variable_fault(name, value, rules),
    )
    if not kept_flags and not kept_env:
        return here, []
    lane = _with_flags(here, kept_flags).lane.model_copy(
        update={"env": _applied(here.lane.env, kept_env)}
    )
    changed = [
        f"{'without ' + name if then is ABSENT else f'{name}={then}'} "
        f"(now: {'not set' if now is ABSENT else _open(name, now)})"
        for name, then, now in [*kept_flags, *kept_env]
    ]
    setup = dataclasses.replace(_with_flags(here, kept_flags), lane=lane)
    return setup, [f"as it was then: {', '.join(changed)}"]


def differences(incident: Incident, here: Setup) -> Iterator[str]:
    """Yield the flags and variables in which a setup differs from the incident's."""
    for name, then, now in (
        *_changes(_flags(incident, here), here.flags),
        *_changes(*_variables(incident, here)),
    ):
        state = f"{name} is not set" if now is ABSENT else f"{name}={_open(name, now)}"
        if not _is_hidden(then):
            yield f"{state} (then: {'not set' if then is ABSENT else checks.excerpt(then)})"
        elif now is ABSENT:  # a secret that is set here counts as the same
            yield f"{state} (then: a value that was not recorded)"


def left_out(incident: Incident, repairs: Sequence[str]) -> tuple[str, ...]:
    """Return the repairs of a lane's overlay that the incident's server did not have."""
    then = _repairs(incident)
    return tuple(name for name in repairs if name not in then)


def unrepaired(incident: Incident, repairs: Sequence[str]) -> Iterator[str]:
    """Yield the repairs in which a server, with `repairs`, differs from the incident's server."""
    then = _repairs(incident)
    for name in then:
        if name not in repairs:
            yield f"without the repair {name}, which is not in the lane's overlay"
    for name in repairs:
        if name not in then:
            yield f"with the repair {name} (then: without it)"


def other_versions(incident: Incident, versions: Mapping[str, str]) -> Iterator[str]:
    """Yield the packages whose installed version differs from the incident's."""
    for name, then in sorted(incident.versions.items()):
        if versions.get(name, then) != then:
            yield f"{name} {versions[name]} (then: {then})"


def _repairs(incident: Incident) -> list[str]:
    return [text.partition(":")[0] for text in incident.lane.overlay]


def _flags(incident: Incident, here: Setup) -> dict[str, Any]:
    """Return the incident's flags; an old incident has only its lane's: the rest are as here."""
    if incident.flags is not None:
        return flags.merged(incident.flags)
    return _json(flags.merged(here.family.serve, here.checkpoint.serve, incident.lane.serve))


def variables(lane: Lane) -> dict[str, str]:
    """Return the variables that a lane's server gets from this shell and from the lane.

    From this shell, only the variables that change how vLLM serves count.
    """
    names = [name for name in types.load().lane.env if name.startswith(OWN_VARIABLES)]
    return {name: os.environ[name] for name in names if name in os.environ} | lane.env


def _variables(incident: Incident, here: Setup) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the variables then and now; an old incident has only its lane's variables."""
    if incident.variables is None:
        return incident.lane.env, here.lane.env
    return incident.variables, variables(here.lane)


def _can_be_set(change: Change, here: Setup) -> bool:
    name, then, _ = change
    return then is not ABSENT or name not in os.environ or name not in variables(here.lane)


def _changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """Return name, value then and value now of everything that differs."""
    pairs = [(name, then.get(name, ABSENT), now.get(name, ABSENT)) for name in {**then, **now}]
    # 1 == True in Python, but not in a command line.
    return [pair for pair in pairs if _identity(pair[1]) != _identity(pair[2])]


def _kept(changes: Sequence[Change], fault: Fault) -> list[Change]:
    """Return the changes that an incident may make; removing a value needs a rule as well."""
    return [
        (name, then, now)
        for name, then, now in changes
        if not _is_hidden(then)
        if (fault(name, then) == "" if then is not ABSENT else fault(name, now) != " ")
    ]


def _with_flags(here: Setup, changes: Sequence[Change]) -> Setup:
    gone = {name for name, then, _ in changes if then is ABSENT}
    more = {name: then for name, then, _ in changes if then is not ABSENT}
    if not changes:
        return here

    def without(serve: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in serve.items() if name.replace("-", "_") not in gone}

    return Setup(
        here.family.model_copy(update={"serve": without(here.family.serve)}),
        dataclasses.replace(here.checkpoint, serve=without(here.checkpoint.serve)),
        here.lane.model_copy(update={"serve": flags.merged(without(here.lane.serve), more)}),
    )


def _applied(now: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str]:
    gone = {name for name, then, _ in changes if then is ABSENT}
    more = {name: then for name, then, _ in changes if then is not ABSENT}
    return {**{name: value for name, value in now.items() if name not in gone}, **more}


def _json(value: Mapping[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(json.dumps(value, default=str))
    return table


def _identity(value: Any) -> str:
    return "" if value is ABSENT else json.dumps(value, sort_keys=True)


def _is_hidden(value: Any) -> bool:
    return value is not ABSENT and REDACTED in _identity(value)


def _open(name: str, value: Any) -> str:
    """Return a value of this machine in printable form, with secrets redacted."""
    return redacted({name: str(value)})[name]
