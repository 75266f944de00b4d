"""Known defects of released vLLM, and which findings of a check they cover.

A family file lists the defects of its own parsers; `known_defects.toml` lists the others. A project
adds its own in a `known_defects.toml` beside its `pyproject.toml`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import Field, field_validator

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.outcomes import Case, Finding

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


@dataclass(frozen=True)
class SortedFindings:
    """The findings of one check: the new ones, the known ones by defect, the defects now gone."""

    new: tuple[Finding, ...]
    known: tuple[tuple[KnownDefect, tuple[Finding, ...]], ...]
    gone: tuple[KnownDefect, ...]


def sort_findings(
    check: str,
    findings: Sequence[Finding],
    cases: Iterable[Case],
    defects: Sequence[KnownDefect],
    version: str | None,
) -> SortedFindings:
    """Sort what `check` found in `cases` by what is known of this `version` of vLLM.

    A defect covers only the findings its entry describes. One of this version, for which there was
    a case and no finding, is gone: its entry can go, too; a case in which something else is wrong
    tells nothing of it. Where the version is not known nothing is covered.
    """
    applicable = [
        defect for defect in defects if defect.check == check and _of_version(defect, version)
    ]
    covered = [
        (defect, tuple(finding for finding in findings if _covers(defect, finding)))
        for defect in applicable
    ]
    new = tuple(
        finding
        for finding in findings
        if not any(_covers(defect, finding) for defect in applicable)
    )
    wrong = [finding.case for finding in new]
    traits = [case.traits for case in cases if case not in wrong]
    return SortedFindings(
        new=new,
        known=tuple(
            (defect, covered_findings) for defect, covered_findings in covered if covered_findings
        ),
        gone=tuple(
            defect
            for defect, covered_findings in covered
            if not covered_findings and any(_has(defect, trait) for trait in traits)
        ),
    )


def _of_version(defect: KnownDefect, version: str | None) -> bool:
    try:
        parsed = Version(version or "")
    except InvalidVersion:
        return False
    return SpecifierSet(defect.versions).contains(parsed, prereleases=True)


def _covers(defect: KnownDefect, finding: Finding) -> bool:
    return _has(defect, finding.case.traits) and bool(re.search(defect.shows, finding.says))


def _has(defect: KnownDefect, traits: Mapping[str, str]) -> bool:
    return all(traits.get(name) in values for name, values in defect.when.items())
