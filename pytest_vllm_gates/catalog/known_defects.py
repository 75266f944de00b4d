"""Known defects of released vLLM, and the findings of checks that they cover.

A family file lists the defects of its parsers; `data/known_defects/<gate>.toml` lists defects
of every family. A project adds its own in a `known_defects.toml` beside its
`pyproject.toml`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field, field_validator

from pytest_vllm_gates import data
from pytest_vllm_gates.bounded import patterns
from pytest_vllm_gates.catalog import outside, toml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.outcomes import Case, Finding

NAME = "known_defects.toml"
SHIPPED = data.FOLDER / "known_defects"
ANY = "*"
ENDS = {"<", "<=", "==", "===", "~="}
"""Operators of PEP 440 that exclude later releases."""
LONGEST_VERSIONS = 200


def _specifies(versions: str) -> str:
    example = "such as '>=0.30,<0.34'"
    if len(versions) > LONGEST_VERSIONS:
        raise ValueError(f"{len(versions)} characters, more than {LONGEST_VERSIONS}; {example}")
    try:
        SpecifierSet(versions)
    except InvalidSpecifier as error:
        raise ValueError(f"{versions!r} is not a set of versions, {example}") from error
    return versions


Versions = Annotated[str, AfterValidator(_specifies)]
"""A set of versions of vLLM as a PEP 440 specifier."""


class KnownDefect(toml.Record):
    """A defect of released vLLM that a gate's check meets.

    It covers only findings of the check `check` in these `versions` of vLLM (PEP 440) whose traits
    match `when` and whose sentence matches `shows` (a regular expression). With `device` only
    vLLM's builds for that device have it.
    """

    check: toml.Name
    what: toml.Sentence
    versions: Versions
    reference: toml.Sentence
    shows: str
    device: Literal["cpu", "cuda", "rocm"] | None = None
    """The device of vLLM's build; None if all builds have the defect."""
    when: dict[toml.Name, Annotated[tuple[str, ...], Field(min_length=1)]] = Field(
        default_factory=dict
    )

    @field_validator("check")
    @classmethod
    def _names_one_check(cls, check: str) -> str:
        if not check or ANY in check:
            raise ValueError("the check is one name, with no * in it: a defect is of one check")
        return check

    @field_validator("shows")
    @classmethod
    def _is_a_pattern(cls, shows: str) -> str:
        if patterns.matches_everything(patterns.checked(shows)):
            raise ValueError(
                f"{shows!r} matches every sentence: use words of the finding that it covers"
            )
        return shows


def ending(versions: str) -> str:
    """Return a set of versions that has an end; raises `ValueError` for one without."""
    if any(specifier.operator in ENDS for specifier in SpecifierSet(versions)):
        return versions
    raise ValueError(
        f"{versions!r} never ends: name the first version that is not checked yet, such as "
        "'>=0.30,<0.34'"
    )


def _ends(defect: KnownDefect) -> KnownDefect:
    ending(defect.versions)
    return defect


EndingDefect = Annotated[KnownDefect, AfterValidator(_ends)]
"""A defect whose versions have an end, as in every file, so that it is checked again."""
EndingVersions = Annotated[Versions, AfterValidator(ending)]


class KnownDefects(toml.Record):
    """The file."""

    known_defects: tuple[EndingDefect, ...] = ()


def load_all(project: Path) -> tuple[KnownDefect, ...]:
    """Read the shipped entries and the project's own; raises `UserError` for a fault in a file."""
    files = [*sorted(SHIPPED.glob("*.toml")), project / NAME]
    return tuple(
        defect
        for path in files
        if path.exists()
        for defect in outside.load(path, KnownDefects).known_defects
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
    *,
    device: str | None = None,
) -> SortedFindings:
    """Sort the findings of `check` in `cases` by the known defects of this `version` of vLLM.

    A defect covers only the findings its entry describes. A defect of this version with a case and
    without a finding is gone: its entry can be removed. A case with another fault is not evidence
    of that. With an unknown version nothing is covered. With an unknown `device` a defect of one
    device counts as possible, and never as gone.
    """
    applicable = [
        defect
        for defect in defects
        if defect.check == check
        and contains(defect.versions, version)
        and (device is None or defect.device in (None, device))
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
            if not covered_findings
            and defect.device in (None, device)
            and any(_has(defect, trait) for trait in traits)
        ),
    )


def contains(versions: str, version: str | None) -> bool:
    """Return whether a version of vLLM is in the set; an unknown version never is."""
    try:
        parsed = Version(version or "")
    except InvalidVersion:
        return False
    return SpecifierSet(versions).contains(parsed, prereleases=True)


def _covers(defect: KnownDefect, finding: Finding) -> bool:
    return _has(defect, finding.case.traits) and _shows(defect, finding.says)


def _shows(defect: KnownDefect, sentence: str) -> bool:
    """Raises `UserError` for a pattern that takes too long."""
    return bool(patterns.checked(defect.shows).search(sentence))


def _has(defect: KnownDefect, traits: Mapping[str, str]) -> bool:
    return all(traits.get(name) in values for name, values in defect.when.items())
