"""Compares the runs of all releases: one row for each fault in any of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_vllm_gates.atlas.findings import DIED, shape
from pytest_vllm_gates.atlas.types import AtlasKind, AtlasRow, AtlasState, in_order
from pytest_vllm_gates.bounded import patterns
from pytest_vllm_gates.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_vllm_gates.atlas.types import AtlasFinding, AtlasRun, AtlasTest
    from pytest_vllm_gates.catalog.known_defects import KnownDefect

WRONG, RIGHT, NOT_SEEN = AtlasState.WRONG, AtlasState.RIGHT, AtlasState.NOT_SEEN
BOOTS = "boots"
BOOT_GATE = "boot"


@dataclass
class _Label:
    """One fault of one test."""

    what: str
    reference: str = ""
    listed: bool = False
    cases: dict[str, str] = field(default_factory=dict)
    """The cases that show it, in order, each with its request if known."""
    wrong: set[str] = field(default_factory=set)
    """The releases that have it."""

    @property
    def shown(self) -> tuple[str, str]:
        """A case with a request; the first case if no request is known."""
        first = next(iter(self.cases), "")
        return next(((case, sent) for case, sent in self.cases.items() if sent), (first, ""))

    def add(self, release: str, cases: Iterable[str], requests: Mapping[str, str]) -> None:
        """Note that a release has it in these cases."""
        self.wrong.add(release)
        for case in filter(None, cases):
            self.cases[case] = self.cases.get(case) or requests.get(case, "")


def of_runs(
    runs: Sequence[AtlasRun], defects: Mapping[str, Sequence[KnownDefect]]
) -> list[AtlasRow]:
    """Return the rows; `defects` are the known ones by family.

    A finding of a release outside a known defect's versions counts as that defect if pattern and
    traits match: a list of versions is not evidence about the server. The latest run of a release
    counts.
    """
    releases = in_order([run.release for run in runs])
    rows: list[AtlasRow] = []
    for family in dict.fromkeys(run.family for run in runs):
        latest = {
            run.release: run
            for run in sorted(runs, key=lambda run: run.created)
            if run.family == family
        }
        rows += _boots(family, latest, releases)
        own = defects.get(family, ())
        latest = {release: _without_echoes(run, own) for release, run in latest.items()}
        rows += _tests(family, latest, releases, own)
    return _merged(rows)


def _without_echoes(run: AtlasRun, defects: Sequence[KnownDefect]) -> AtlasRun:
    """Return a run in which a known defect ended the server, without the findings that follow.

    Each later request fails, and all of these findings are one fault.
    """
    if not any(
        DIED.search(finding.says) and _listed(test, finding, defects)
        for test in run.tests
        for finding in test.findings
    ):
        return run
    tests = tuple(
        replace(
            test,
            findings=tuple(
                finding
                for finding in test.findings
                if not DIED.search(finding.says) or _listed(test, finding, defects)
            ),
        )
        for test in run.tests
    )
    return replace(run, tests=tests)


def _listed(test: AtlasTest, finding: AtlasFinding, defects: Sequence[KnownDefect]) -> bool:
    return any(each.check == test.test and _fits(each, finding) for each in defects)


def _boots(family: str, latest: Mapping[str, AtlasRun], releases: Sequence[str]) -> list[AtlasRow]:
    reasons = dict.fromkeys(run.boot for run in latest.values() if run.boot)
    return [
        AtlasRow(
            AtlasKind.BOOT, BOOT_GATE, BOOTS, (family,), reason, "",
            tuple((each, _boot_state(latest.get(each), reason)) for each in releases),
            listed=False,
        )
        for reason in reasons
    ]  # fmt: skip


def _boot_state(run: AtlasRun | None, reason: str) -> AtlasState:
    if run is None or run.boot not in ("", reason):
        return NOT_SEEN
    return WRONG if run.boot else RIGHT


def _tests(
    family: str,
    latest: Mapping[str, AtlasRun],
    releases: Sequence[str],
    defects: Sequence[KnownDefect],
) -> list[AtlasRow]:
    tests: dict[tuple[str, str], dict[str, AtlasTest]] = {}
    for release in releases:
        run = latest.get(release)
        for test in run.tests if run else ():
            tests.setdefault((test.gate, test.test), {})[release] = test
    rows = []
    for (gate, name), by_release in tests.items():
        if not any(test.outcome in (Outcome.FAIL, Outcome.KNOWN) for test in by_release.values()):
            continue
        own = [defect for defect in defects if defect.check == name]
        drift = any(test.drift for test in by_release.values())
        labels = _labels(by_release, own)
        found = [
            AtlasRow(
                AtlasKind.DRIFT if drift else AtlasKind.WRONG,
                gate, name, (family,), label.what, label.reference,
                tuple((each, _state(by_release.get(each), label, each)) for each in releases),
                label.listed, *label.shown,
            )
            for label in labels.values()
        ]  # fmt: skip
        rows += _alike(found)
    return rows


def _labels(
    by_release: Mapping[str, AtlasTest], defects: Sequence[KnownDefect]
) -> dict[str, _Label]:
    """Return the faults of one test over all releases."""
    texts = {f"{defect.what} ({defect.reference})": defect for defect in defects}
    labels: dict[str, _Label] = {}
    for release, test in reversed(list(by_release.items())):
        for text in test.known:
            defect = texts.get(text)
            reference = defect.reference if defect else ""
            label = labels.setdefault(
                text,
                _Label(defect.what if defect else text, reference, listed=True),
            )
            label.add(release, test.known_in.get(reference, ()), test.requests)
        for finding in test.findings:
            defect = next((each for each in defects if _fits(each, finding)), None)
            if defect:
                label = labels.setdefault(
                    f"{defect.what} ({defect.reference})",
                    _Label(defect.what, defect.reference, listed=True),
                )
            else:
                label = labels.setdefault(shape(finding.says), _Label(finding.says))
            label.add(release, [finding.case], test.requests)
    return labels


def _fits(defect: KnownDefect, finding: AtlasFinding) -> bool:
    """Return whether a finding is of a defect; its sentence may begin with its case."""
    where = finding.case or finding.says
    if not all(any(value in where for value in values) for values in defect.when.values()):
        return False
    pattern = patterns.checked(defect.shows)
    texts = [finding.says]
    while not finding.case and ": " in texts[-1]:
        texts.append(texts[-1].partition(": ")[2])
    return any(pattern.search(text) for text in texts)


def _state(test: AtlasTest | None, label: _Label, release: str) -> AtlasState:
    """Return the state of a fault in a release: a check that was not judged is never right."""
    if release in label.wrong:
        return WRONG
    if test is None:
        return NOT_SEEN
    if test.outcome == Outcome.PASS:
        return RIGHT
    judged = test.outcome == Outcome.KNOWN or (test.outcome == Outcome.FAIL and test.complete)
    return RIGHT if judged and not _covered(test, label) else NOT_SEEN


def _covered(test: AtlasTest, label: _Label) -> bool:
    """Return whether another fault is in every case that shows a fault elsewhere."""
    wrong = {finding.case for finding in test.findings}
    wrong.update(case for cases in test.known_in.values() for case in cases)
    return bool(label.cases) and label.cases.keys() <= wrong


def _alike(rows: Sequence[AtlasRow]) -> list[AtlasRow]:
    """Return the rows of one test; unlisted rows with equal states are joined."""
    kept: list[AtlasRow] = [row for row in rows if row.listed]
    unlisted: list[AtlasRow] = []
    for row in rows:
        if row.listed:
            continue
        for place, other in enumerate(unlisted):
            if joined := _joined(other, row):
                unlisted[place] = joined
                break
        else:
            unlisted.append(row)
    return kept + unlisted


def _joined(one: AtlasRow, other: AtlasRow) -> AtlasRow | None:
    """Return two rows as one; None if a release has only one of them, or none has both."""
    states = []
    if not any(
        {ours, theirs} == {WRONG}
        for (_, ours), (_, theirs) in zip(one.states, other.states, strict=True)
    ):
        return None
    for (release, ours), (_, theirs) in zip(one.states, other.states, strict=True):
        if {ours, theirs} == {WRONG, RIGHT}:
            return None
        states.append((release, theirs if ours is NOT_SEEN else ours))
    return replace(one, states=tuple(states))


def _merged(rows: Sequence[AtlasRow]) -> list[AtlasRow]:
    """Return the rows, joined for families with the same fault in the same releases."""
    merged: dict[tuple[object, ...], AtlasRow] = {}
    for row in rows:
        sentence = row.what if row.listed else shape(row.what)
        key = (row.kind, row.gate, row.test, sentence, row.reference, row.states)
        other = merged.get(key)
        merged[key] = replace(other, families=other.families + row.families) if other else row
    return list(merged.values())
