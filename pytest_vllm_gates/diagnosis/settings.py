"""The settings of a server, from its log and its lane, and the fixes that they leave.

A fix is left out if all flags and variables that it names already have that value. From a list of
alternatives, only those that are already set are removed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# As `'max_model_len': 32768`, `tensor_parallel_size=2`, `--enforce-eager`, `--dtype half`.
PAIRS = (
    re.compile(r"'(?P<name>[a-z]\w+)': (?P<value>'[^']*'|[^,{}\[\]]+)"),
    re.compile(r"\b(?P<name>[a-z]\w+)=(?P<value>'[^']*'|[^,{}\[\]() ]+)"),
    re.compile(r"--(?P<name>[a-z][\w-]+)(?:[= ](?P<value>(?!-)[^\s,]+))?"),
)
VARIABLE = re.compile(r"\b(?P<name>[A-Z][A-Z0-9_]{3,})=(?P<value>[\w./:-]+)")
# The advice in a fix: a flag in backticks with its value, or a variable with one.
ADVISED = re.compile(
    r"`--(?P<flag>[a-z][\w.-]+)(?: (?P<value>[^`]+))?`"
    r"|`?\b(?P<variable>[A-Z][A-Z0-9_]{3,})=(?P<to>[\w./:-]+)`?"
)
LESS_OR_MORE = re.compile(
    r"\b(?:lower|raise|leave out|smaller|larger|below|above|instead of|without)\b"
)
ON = frozenset({"", "true", "1"})
MOST_CHARACTERS = 20_000


class Settings:
    """Flags and variables of a server by their names; flags in lower case with underscores."""

    def __init__(self) -> None:
        self.flags: dict[str, str] = {}
        self.variables: dict[str, str] = {}

    def read(self, line: str) -> None:
        """Add the settings in a line of arguments."""
        line = line[:MOST_CHARACTERS]
        for pattern in PAIRS:
            for match in pattern.finditer(line):
                value = (match["value"] or "").strip().strip("'")
                self.flags[match["name"].replace("-", "_")] = value
        for match in VARIABLE.finditer(line):
            self.variables[match["name"]] = match["value"]

    def add(self, flags: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        """Add the settings of a lane or a config file."""
        for name, value in flags.items():
            self.flags[name.lstrip("-").replace("-", "_")] = str(value)
        self.variables.update({name: str(value) for name, value in variables.items()})

    def has(self, advised: re.Match[str]) -> bool:
        """Return whether a flag or variable already has the value that a fix advises."""
        if advised["variable"]:
            return self.variables.get(advised["variable"]) == advised["to"]
        name, value = advised["flag"].replace("-", "_"), (advised["value"] or "").lower()
        if name.startswith("no_") and name not in self.flags:
            return self.flags.get(name.removeprefix("no_"), "").lower() in ("false", "0")
        current = self.flags.get(name)
        if current is None:
            return False
        return current.lower() in ON if not value else current.lower() == value

    def left_of(self, fixes: Iterable[str]) -> tuple[str, ...]:
        """Return the fixes without settings that are made; all of them if none would be left."""
        fixes = tuple(fixes)
        left = [kept for fix in fixes if (kept := self._left_of(fix))]
        return tuple(left) or fixes

    def _left_of(self, fix: str) -> str:
        advised = list(ADVISED.finditer(fix))
        done = [match for match in advised if self.has(match)]
        if not done or LESS_OR_MORE.search(fix):
            return fix
        if len(done) == len(advised):
            return ""
        for match in reversed(done):
            fix = _without(fix, match)
        return fix


def _without(fix: str, match: re.Match[str]) -> str:
    """Return a fix without one item of its list; unchanged if the item is part of a sentence."""
    before, after = fix[: match.start()], fix[match.end() :]
    if after.startswith(", ") and before.endswith((", ", ": ")):
        return before + after[2:]
    if before.endswith(", ") and (not after or after[0] in ",.;"):
        return before[:-2] + after
    return fix
