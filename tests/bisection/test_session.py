"""A bisection keeps its trials, continues after a kill, and pins a lane without the culprit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from environment.lane_site import Site, site_fixture  # noqa: F401, TC002 - a fixture

from bisection.lane_pairs import pair
from pytest_vllm_gates.bisection import judge, state
from pytest_vllm_gates.bisection.judge import BisectQuestion, Judgement
from pytest_vllm_gates.bisection.session import Bisection
from pytest_vllm_gates.bisection.types import TrialAnswer
from pytest_vllm_gates.catalog import lane as lanes

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.bisection.state import Trial

GOOD_FLAGS = "[serve]\nmax_num_seqs = 8\nblock_size = 16\n"
BAD_FLAGS = "[serve]\nmax_num_seqs = 16\nblock_size = 32\nenforce_eager = true\n"
FLAG = {"enforce_eager": True}


class Boots:
    """Replaces booting and judging: a lane with `bad` flags is bad; ends after `most`."""

    def __init__(self, most: int = 99) -> None:
        self.lanes: list[str] = []
        self.failing: list[tuple[str, ...]] = []
        self._most = most

    def run(self, question: BisectQuestion, lane: Path, **rest: object) -> Judgement:
        del question
        if len(self.lanes) == self._most:
            raise KeyboardInterrupt
        self.lanes.append(lane.stem)
        failing = rest["failing"]
        assert isinstance(failing, tuple)
        self.failing.append(failing)
        if FLAG.items() <= lanes.load(str(lane), lane.parent).serve.items():
            return Judgement(TrialAnswer.BAD, "FAIL test_x", ("test_x",))
        return Judgement(TrialAnswer.GOOD, "passes")


def bisection(site: Site, shown: list[Trial]) -> Bisection:
    found = pair(site.project, {}, good_toml=GOOD_FLAGS, bad_toml=BAD_FLAGS)
    kept = state.opened(site.project / "state.json", {"asked": "x"})
    return Bisection(
        found, BisectQuestion("m", ("tools",)), kept, site.project / "work", site.project,
        site.cache, site.said.append, shown.append,
    )  # fmt: skip


def test_killed_bisection_goes_on_where_it_was(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Boots(most=3), Boots()
    shown: list[Trial] = []
    monkeypatch.setattr(judge, "run", first.run)
    with pytest.raises(KeyboardInterrupt):
        bisection(site, []).find(error=0, doubt=0.01)
    monkeypatch.setattr(judge, "run", second.run)
    result = bisection(site, shown).find(error=0, doubt=0.01)
    assert [(each.axis, each.items) for each in result.culprits] == [("flags", ("enforce_eager",))]
    assert result.certain
    assert len({(trial.mixture, trial.number) for trial in shown}) == 3 + len(second.lanes)
    assert len(site.made()) == 1  # the packages of both lanes are the same


def test_other_bundles_are_judged_by_the_failures_of_the_bad_one(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    boots = Boots()
    monkeypatch.setattr(judge, "run", boots.run)
    bisection(site, []).find(error=0, doubt=0.01)
    assert boots.failing[0] == ()
    assert {*boots.failing[1:]} == {("test_x",)}


def test_pinned_lane_has_everything_but_the_culprit(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "run", Boots().run)
    made = bisection(site, [])
    pinned = made.pinned(made.find(error=0, doubt=0.01))
    assert pinned is not None
    lane = lanes.load(str(pinned), site.project)
    assert lane.serve == {"max_num_seqs": 16, "block_size": 32}


def test_lane_that_cannot_be_made_is_inconclusive(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "run", Boots().run)
    monkeypatch.setenv("FAKE_UV", "network")
    shown: list[Trial] = []
    result = bisection(site, shown).find(error=0, doubt=0.01)
    assert result.reasons == ("the bad lane answers INCONCLUSIVE, not BAD",)
    assert shown[0].why.startswith("cannot be made: lane mixed-")
    assert "a package index cannot be reached" in shown[0].why
