"""Two lanes differ in axes that can be mixed; changes that follow a release are not an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bisection.lane_pairs import pair
from pytest_vllm_gates.bisection import differences
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

SCALE_OUT = "[serve]\nenable_scale_out = true\n"


def test_packages_flags_and_variables_are_axes(tmp_path: Path) -> None:
    found = pair(
        tmp_path,
        {"vllm": "0.31.0", "transformers": "5.17.1", "xgrammar": "0.2", "six": "1.17.0"},
        good_toml="[serve]\nmax_num_seqs = 8\n[env]\nA = '1'\n",
        bad_toml="[serve]\nmax_num_seqs = 16\nenforce_eager = true\n[env]\nB = '1'\n",
    )
    axes = {axis.name: axis for axis in found.axes}
    assert [*axes] == [
        "vllm", "transformers", "other packages", "flags", "environment",
    ]  # fmt: skip
    assert axes["vllm"].versions == ("0.29.0", "0.30.0", "0.31.0")
    assert axes["transformers"].versions == ("5.16.0", "5.16.1", "5.17.0", "5.17.1")
    assert axes["other packages"].items == ("six",)
    assert axes["flags"].items == ("max_num_seqs", "enforce_eager")
    assert axes["environment"].items == ("A", "B")
    assert found.package_axes["xgrammar"] == "vllm"


def test_newer_lane_may_be_the_good_one() -> None:
    row = differences.row("0.32.0", "0.30.0", ("0.31.0", "0.30.0", "0.31.0rc1", "none"))
    assert row == ("0.32.0", "0.31.0", "0.30.0")


def test_flag_that_the_older_release_lacks_goes_along(tmp_path: Path) -> None:
    found = pair(tmp_path, {"vllm": "0.31.0"}, bad_toml=SCALE_OUT)
    assert [axis.name for axis in found.axes] == ["vllm"]
    assert found.follows == {"enable_scale_out"}


def test_start_is_an_axis_of_one_release_alone(tmp_path: Path) -> None:
    start = '[start]\nserver = ["-m", "vllm.entrypoints.launchers.api_server.entry"]\n'
    assert [axis.name for axis in pair(tmp_path, {}, bad_toml=start).axes] == ["start"]
    both = pair(tmp_path, {"vllm": "0.31.0"}, bad_toml=start)
    assert [axis.name for axis in both.axes] == ["vllm"]


def test_template_is_an_axis_of_its_own(tmp_path: Path) -> None:
    found = pair(tmp_path, {}, bad_toml='[serve]\nchat_template = "mine.jinja"\n')
    assert [(axis.name, axis.good, axis.bad) for axis in found.axes] == [
        ("chat template", "none", "mine.jinja")
    ]


def test_lane_without_a_lock_is_refused_with_the_next_command(tmp_path: Path) -> None:
    found = pair(tmp_path, {})
    (tmp_path / "lanes" / "url.toml").write_text('title = "u"\nbase_url = "http://host/v1"\n')
    url = lanes.load("url", tmp_path)
    with pytest.raises(UserError, match="only lanes with a lock can be mixed\nmake a lock for it"):
        differences.pair(found.good, url, ({}, {}), None, lambda _: ())  # type: ignore[arg-type]
