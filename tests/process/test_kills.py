"""After any SIGKILL, no process of a server is left and no file in /dev/shm."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from process.trees import SHM, Tree
from pytest_vllm_gates.process.shared_memory import FOLDER, Segments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEED = 28
PARTS = ["runner", "server", "worker", "runner+outer guard", "runner+inner guard"]
GUARDS = ["outer guard", "inner guard", "outer guard+inner guard"]
AT_ONCE = 5
LATEST_S = 1.2
BATCHES = 10


def plan(batch: int) -> list[tuple[str, float]]:
    """Return which part is killed and when, for five trees; at least one is a guard."""
    chance = random.Random(SEED * 1000 + batch)  # noqa: S311 - to be the same in every run
    parts = [chance.choice(GUARDS), *chance.choices([*PARTS, *GUARDS], k=AT_ONCE - 1)]
    return [(part, chance.uniform(0.05, LATEST_S)) for part in parts]


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_kill_leaves_nothing(tmp_path: Path, batch: int) -> None:
    kills = sorted(plan(batch), key=lambda kill: kill[1])
    trees = [Tree(f"{batch}x{number}x{tmp_path.stat().st_ino}", tmp_path / f"{number}.log")
             for number in range(AT_ONCE)]  # fmt: skip
    try:
        begun = time.monotonic()
        for tree, (part, moment) in zip(trees, kills, strict=True):
            time.sleep(max(0.0, begun + moment - time.monotonic()))
            tree.kill(*part.split("+"))
            if part == "worker":  # the server may go on after that
                tree.kill("runner")
        for tree, (part, moment) in zip(trees, kills, strict=True):
            assert tree.remains() == ([], []), f"{part} killed after {moment:.2f} s left something"
    finally:
        for tree in trees:
            tree.__exit__(None, None, None)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    with Tree(f"one{tmp_path.stat().st_ino}", tmp_path / "log") as tree:
        tree.await_ready()
        yield tree


@pytest.mark.parametrize("parts", [*GUARDS, *PARTS, "outer guard+server", "inner guard+worker"])
def test_kill_of_a_served_tree_leaves_nothing(tree: Tree, parts: str) -> None:
    members = tree.members()
    assert set(parts.split("+")) <= members.keys()
    tree.kill(*parts.split("+"))
    if parts == "worker":
        tree.kill("runner")
    assert tree.remains() == ([], [])


def test_files_of_others_stay(tree: Tree) -> None:
    before_name, other_name = f"psm_{tree.token}other", f"psm_{tree.token}unseen"
    named_otherwise = SHM / f"mine_{tree.token}"
    files = [SHM / before_name, SHM / other_name, named_otherwise]
    try:
        with files[0].open("wb") as held:
            held.write(b"x")
            files[1].write_bytes(b"x")
            named_otherwise.write_bytes(b"x")
            time.sleep(1.0)  # it is seen while the server runs, and no process has it open
            tree.kill("inner guard")
            assert tree.remains() == ([], [])
        assert all(file.exists() for file in files)
    finally:
        for file in files:
            file.unlink(missing_ok=True)


def test_file_that_was_there_before_stays(tmp_path: Path) -> None:
    file = FOLDER / f"psm_before{tmp_path.stat().st_ino}"
    file.write_bytes(b"x")
    try:
        segments = Segments()
        segments.look(lambda: (), closely=True)
        segments.remove()
        assert file.exists()
    finally:
        file.unlink()


def test_file_that_is_open_stays_until_it_is_closed(tmp_path: Path) -> None:
    segments = Segments()
    file = FOLDER / f"psm_open{tmp_path.stat().st_ino}"
    try:
        with file.open("wb"):
            segments.remove()
            assert file.exists()
        segments.remove()
        assert not file.exists()
    finally:
        file.unlink(missing_ok=True)


def test_unseen_file_stays_if_other_processes_are_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_vllm_gates.process.shared_memory.FIRST_PIDS", "another")
    segments = Segments()
    file = FOLDER / f"psm_hidden{tmp_path.stat().st_ino}"
    file.write_bytes(b"x")
    try:
        segments.remove()
        assert file.exists()
    finally:
        file.unlink()
