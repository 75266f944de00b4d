"""One bisection: tests each mixture, keeps its outcome, and searches."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.bisection import bundles, gates_run, judge, search
from pytest_vllm_gates.bisection.judge import Judgement
from pytest_vllm_gates.bisection.state import Trial
from pytest_vllm_gates.bisection.types import Mixture, TrialAnswer
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.environment import build, environment
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.bisection.differences import LanePair
    from pytest_vllm_gates.bisection.judge import BisectQuestion
    from pytest_vllm_gates.bisection.state import BisectState
    from pytest_vllm_gates.bisection.types import BisectResult

INCONCLUSIVE = TrialAnswer.INCONCLUSIVE
LEAST_FREE_BYTES = 10 * 2**30
"""Free disk below which environments of earlier mixtures are removed."""


@dataclass
class Bisection:
    """Two lanes, the tests for the bundles between them, and the folder for all files."""

    pair: LanePair
    question: BisectQuestion
    state: BisectState
    folder: Path
    project: Path
    cache: Path
    say: Callable[[str], None]
    report: Callable[[Trial], None]
    """Called with each new trial, and with each trial known from earlier."""

    def find(self, *, error: float, doubt: float) -> BisectResult:
        """Search; returns the result."""
        return search.find(self.pair.axes, self._ask, error=error, doubt=doubt)

    def pinned(self, result: BisectResult) -> Path | None:
        """Return the bad lane without the culprits, or None if it cannot be made.

        A culprit among releases is at its last good release. The lane is not tried.
        """
        if not result.culprits:
            return None
        axes = frozenset(axis.name for axis in self.pair.axes)
        rest = axes - {culprit.axis for culprit in result.culprits}
        first = result.culprits[0]
        span = next(axis for axis in self.pair.axes if axis.name == first.axis)
        version = None
        if len(result.culprits) == 1 and span.versions and first.last_good != span.good:
            version = (first.axis, first.last_good)
        items = None
        if len(result.culprits) == 1 and first.items and frozenset(first.items) < {*span.items}:
            items = (first.axis, frozenset(span.items) - {*first.items})
        try:
            return bundles.lane_of(Mixture(rest, version, items), self.pair, self._lanes)
        except bundles.UnresolvableError:
            return None

    @property
    def bad_report(self) -> Path | None:
        """Return the folder of the bad lane's first report; None without a report."""
        first = self.state.known(self._everything.key, 1)
        folder = self._run_folder(Path(first.lane), 1) if first and first.lane else None
        return folder if folder and (folder / gates_run.VERDICT).is_file() else None

    def _run_folder(self, lane: Path, number: int) -> Path:
        return self.folder / "runs" / f"{lane.stem}-{number}"

    @property
    def _lanes(self) -> Path:
        return self.folder / "lanes"

    def _ask(self, mixture: Mixture, number: int) -> TrialAnswer:
        trial = self.state.known(mixture.key, number)
        if trial is None:
            trial = self._trial(mixture, number)
            self.state.add(trial)
        self.report(trial)
        return trial.answer

    def _trial(self, mixture: Mixture, number: int) -> Trial:
        started = time.monotonic()
        version = bundles.vllm_version(mixture, self.pair)
        self.say(f"{mixture.key}: resolving")
        file: Path | None = None
        try:
            file = bundles.lane_of(mixture, self.pair, self._lanes)
            lane = lanes.load(str(file), self.project)
            self._make_room(file)
            environment.prepare(lane, cache=self.cache, progress=self.say)
        except bundles.UnresolvableError as error:
            judged = Judgement(INCONCLUSIVE, f"does not resolve: {_line(str(error))}")
        except UserError as error:
            judged = Judgement(INCONCLUSIVE, f"cannot be made: {_line(str(error))}")
        else:
            judged = judge.run(
                self.question,
                file,
                project=self.project,
                folder=self._run_folder(file, number),
                say=self.say,
                failing=() if mixture == self._everything else self._failing,
            )
        seconds = time.monotonic() - started
        return Trial(
            mixture.key, number, judged.answer, judged.why, seconds, str(file or ""), version,
            judged.failed,
        )  # fmt: skip

    @property
    def _everything(self) -> Mixture:
        return Mixture(frozenset(axis.name for axis in self.pair.axes))

    @property
    def _failing(self) -> tuple[str, ...]:
        """Return the tests that failed on the bad lane."""
        first = self.state.known(self._everything.key, 1)
        return first.failed if first else ()

    def _make_room(self, wanted: Path) -> None:
        """Remove environments that only this bisection made, if the disk is nearly full."""
        self.cache.mkdir(parents=True, exist_ok=True)
        for file in sorted(self._lanes.glob("*.toml")):
            if shutil.disk_usage(self.cache).free >= LEAST_FREE_BYTES:
                return
            if file != wanted:
                lane = lanes.load(str(file), self.project)
                home = build.existing_environment(lane, self.cache)
                if home is not None and home.name.startswith(file.stem):
                    self.say(f"the disk is nearly full: removing {home.name}")
                    shutil.rmtree(home, ignore_errors=True)


def _line(text: str) -> str:
    """Return the most informative line of an error."""
    lines = [line.strip().removeprefix("uv: ") for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "because" in line.lower()), lines[0])[:200]
