"""Which findings of a check are defects the family file knows, and which known ones are gone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_vllm_gates.catalog.known_defects import KnownDefect
    from pytest_vllm_gates.facts.finding import Case, Finding


@dataclass(frozen=True)
class Sorted:
    """The findings of one check: the new ones, the known ones by defect, the defects now gone."""

    new: tuple[Finding, ...]
    known: tuple[tuple[KnownDefect, tuple[Finding, ...]], ...]
    gone: tuple[KnownDefect, ...]


def sort(
    check: str,
    findings: Sequence[Finding],
    cases: Iterable[Case],
    defects: Sequence[KnownDefect],
    version: str | None,
) -> Sorted:
    """Sort what `check` found in `cases` by what is known of this `version` of vLLM.

    A defect covers only the findings its entry describes. One of this version, for which there was
    a case and no finding, is gone: its entry can go, too; a case in which something else is wrong
    tells nothing of it. Where the version is not known nothing is covered.
    """
    here = [one for one in defects if one.check == check and _of_version(one, version)]
    covered = [(one, tuple(each for each in findings if _covers(one, each))) for one in here]
    new = tuple(each for each in findings if not any(_covers(one, each) for one in here))
    wrong = [each.case for each in new]
    traits = [case.traits for case in cases if case not in wrong]
    return Sorted(
        new=new,
        known=tuple((one, some) for one, some in covered if some),
        gone=tuple(
            one for one, some in covered if not some and any(_has(one, given) for given in traits)
        ),
    )


def _of_version(defect: KnownDefect, version: str | None) -> bool:
    try:
        found = Version(version or "")
    except InvalidVersion:
        return False
    return SpecifierSet(defect.versions).contains(found, prereleases=True)


def _covers(defect: KnownDefect, finding: Finding) -> bool:
    return _has(defect, finding.case.traits) and bool(re.search(defect.shows, finding.says))


def _has(defect: KnownDefect, traits: Mapping[str, str]) -> bool:
    return all(traits.get(name) in values for name, values in defect.when.items())
