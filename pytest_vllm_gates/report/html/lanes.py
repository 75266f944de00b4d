"""The documents of both lanes, and what their reports' folders hold besides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.report.html import streams
from pytest_vllm_gates.report.html.bounds import listing, mapping

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Where = tuple[str, str, str]
"""Family, gate and test."""


@dataclass(frozen=True)
class Lanes:
    """Our lane's document, the other's where there is one, and the folder of our report."""

    ours: Mapping[str, Any]
    theirs: Mapping[str, Any] | None = None
    folder: Path | None = None

    @property
    def names(self) -> tuple[str, str]:
        """What the lanes are called."""
        theirs = mapping(self.theirs.get("lane")) if self.theirs else {}
        one = mapping(self.ours.get("lane")).get("name", "this lane")
        return str(one), str(theirs.get("name", "the other lane"))

    def incidents(self, where: Where) -> list[str]:
        """Return the folders of our bundles of a test, from the report's folder."""
        return _incidents(self.ours, where)

    def recorded(self, paths: Sequence[str]) -> list[tuple[str, list[streams.Piece]]]:
        """Return the streams that our bundles hold."""
        return _recorded(self.folder, paths)

    def recorded_by_them(self, where: Where) -> list[tuple[str, list[streams.Piece]]]:
        """Return the streams that the other lane's bundles of a test hold."""
        document = mapping(self.ours.get("against")).get("document")
        if self.theirs is None or self.folder is None or not isinstance(document, str):
            return []
        return _recorded((self.folder / document).parent, _incidents(self.theirs, where))

    def their_evidence(self, where: Where) -> dict[str, Any]:
        """Return what the same test wrote down on the other lane."""
        if self.theirs is None:
            return {}
        found = (
            mapping(test.get("evidence"))
            for family in map(mapping, listing(self.theirs.get("families")))
            for gate in map(mapping, listing(family.get("gates")))
            for test in map(mapping, listing(gate.get("tests")))
            if (family.get("name"), gate.get("gate"), test.get("test")) == where
        )
        return next(found, {})


def _incidents(document: Mapping[str, Any], where: Where) -> list[str]:
    return [
        str(one.get("path", ""))
        for one in map(mapping, listing(document.get("incidents")))
        if (one.get("family"), one.get("gate"), one.get("test")) == where
    ]


def _recorded(folder: Path | None, paths: Sequence[str]) -> list[tuple[str, list[streams.Piece]]]:
    if folder is None:
        return []
    return [stream for path in paths for stream in streams.of_incident(folder / path)]
