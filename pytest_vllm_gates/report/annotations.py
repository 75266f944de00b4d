"""A run's failures as annotations of GitHub Actions, at the family's or lane's file.

The form follows the workflow commands `error` and `warning`:
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

LEVELS = {
    Outcome.FAIL: "error",
    Outcome.BLOCKED: "error",
    Outcome.MISSING: "warning",
    Outcome.INCONCLUSIVE: "warning",
}
MESSAGE_CHARACTERS = 4000


def lines(document: Mapping[str, Any], project: Path) -> Iterator[str]:
    """Yield a line for each failed or undecided test, with its file if `project` has it."""
    lane = document["lane"]["name"]
    for family in document["families"]:
        name = family["name"]
        place = _place(project, [f"families/{name.split('/')[0]}.toml", f"lanes/{lane}.toml"])
        for gate in family["gates"]:
            for test in gate["tests"]:
                level = LEVELS.get(test["outcome"])
                if level:
                    title = f"{name}: {gate['gate']}: {test['test']} is {test['outcome']}"
                    yield _command(level, {**place, "title": title}, test["reason"])


def _place(project: Path, candidates: list[str]) -> dict[str, str]:
    """Return the first of the files that the project has, and the line of its title."""
    for candidate in candidates:
        try:
            text = bounded_read.text(project / candidate)
        except FileError:
            continue
        numbered = enumerate(text.splitlines(), 1)
        line = next((number for number, row in numbered if row.startswith("title")), 1)
        return {"file": candidate, "line": str(line)}
    return {}


def _command(level: str, properties: Mapping[str, str], message: str) -> str:
    shown = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{level} {shown}::{_escaped(message[:MESSAGE_CHARACTERS])}"


def _escaped(text: str) -> str:
    """Return a text, escaped so that nothing in it ends the command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
