"""A commit of vLLM, its wheel for this machine, and a row of commits."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LABEL = 12
"""The number of characters of a commit's hash in its label."""
LABELLED = re.compile(rf"[0-9a-f]{{{LABEL}}}")
SHA = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Commit:
    """One commit of vLLM."""

    sha: str
    """40 hex digits."""
    date: str = ""
    """The commit's date, as 2026-09-30."""
    subject: str = ""
    """The first line of its message."""

    @property
    def label(self) -> str:
        """Return the beginning of its hash."""
        return self.sha[:LABEL]


@dataclass(frozen=True)
class NightlyWheel:
    """The wheel of one commit for this machine."""

    sha: str
    version: str
    """The package's version, as in the wheel's name: `0.23.1rc1.dev1403+g4080263bb.cu129`.

    It counts from the last tag on main, so it may be lower than that of releases before it.
    """
    url: str


@dataclass(frozen=True)
class CommitRow:
    """The commits between a good version and a bad one, in that order, neither included."""

    commits: tuple[Commit, ...]
    wheels: Mapping[str, NightlyWheel] = field(default_factory=dict)
    """The wheel of each commit that has one for this machine, by the commit's label."""
    newer_good: bool = False
    """Whether the good version is the newer one, so that the row goes back in time."""

    @property
    def available(self) -> tuple[str, ...]:
        """Return the labels of the commits that have a wheel, in order."""
        return tuple(each.label for each in self.commits if each.label in self.wheels)

    @property
    def missing(self) -> tuple[tuple[str, ...], ...]:
        """Return the labels without a wheel before each label with one, and after the last."""
        gaps: list[list[str]] = [[]]
        for each in self.commits:
            if each.label in self.wheels:
                gaps.append([])
            else:
                gaps[-1].append(each.label)
        return tuple(tuple(gap) for gap in gaps)

    def commit(self, label: str) -> Commit | None:
        """Return the commit of a label; None if the row does not have it."""
        return next((each for each in self.commits if each.label == label), None)


def is_label(text: str) -> bool:
    """Return whether a text is the label of a commit, and not a release."""
    return LABELLED.fullmatch(text) is not None
