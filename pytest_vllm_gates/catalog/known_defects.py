"""Known defects of released vLLM: a family's own, and those of every family.

A family file lists what only its parsers do; `known_defects.toml` lists the rest. A project adds
its own in a `known_defects.toml` beside its `pyproject.toml`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import Field, field_validator

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml

if TYPE_CHECKING:
    from pathlib import Path

NAME = "known_defects.toml"
SHIPPED = data.FOLDER / NAME


class KnownDefect(toml.Record):
    """A defect of released vLLM that a gate's check meets.

    It covers a finding of the check `check` in these `versions` of vLLM (PEP 440) whose traits are
    those of `when` and whose sentence matches `shows` (a regular expression), and no other.
    """

    check: str
    what: str
    versions: str
    reference: str
    shows: str
    when: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    @field_validator("versions")
    @classmethod
    def _specifies(cls, versions: str) -> str:
        try:
            SpecifierSet(versions)
        except InvalidSpecifier as error:
            raise ValueError(
                f"{versions!r} is no set of versions, such as '>=0.30,<0.34'"
            ) from error
        return versions

    @field_validator("shows")
    @classmethod
    def _is_a_pattern(cls, shows: str) -> str:
        try:
            re.compile(shows)
        except re.error as error:
            raise ValueError(f"{shows!r} is no regular expression: {error}") from error
        return shows


class KnownDefects(toml.Record):
    """The file."""

    known_defects: tuple[KnownDefect, ...] = ()


def load_all(project: Path) -> tuple[KnownDefect, ...]:
    """Read the shipped entries and the project's own; raises `UserError` for a fault in a file."""
    files = [SHIPPED, project / NAME]
    return tuple(
        defect
        for path in files
        if path.is_file()
        for defect in toml.load(path, KnownDefects).known_defects
    )
