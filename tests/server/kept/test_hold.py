"""A kept server's lock ends with its owner."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from survivors import until

from pytest_vllm_gates.server.kept import private
from pytest_vllm_gates.server.kept.hold import Hold

if TYPE_CHECKING:
    from pathlib import Path

HOLDS = """\
import sys, time
from pathlib import Path
from pytest_vllm_gates.server.kept.hold import Hold
assert Hold(Path(sys.argv[1])).acquire()
print(flush=True)
time.sleep(60)
"""


def test_hold_has_one_owner(tmp_path: Path) -> None:
    hold, second_hold = Hold(tmp_path), Hold(tmp_path)
    assert hold.acquire()
    assert hold.acquire(), "its own"
    assert second_hold.held()
    assert not second_hold.acquire(0.05)
    hold.release()
    assert not second_hold.held()
    assert second_hold.acquire()


def test_killed_owner_releases_the_hold(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        holder.stdout.readline()
        assert Hold(tmp_path).held()
        holder.kill()
    until(lambda: not Hold(tmp_path).held())


def test_hold_of_a_removed_server_cannot_be_acquired(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    hold, second_hold = Hold(folder), Hold(folder)
    assert hold.acquire()
    hold.path.rename(tmp_path / "gone")
    folder.rmdir()
    hold.release()
    assert not second_hold.acquire()
    assert not second_hold.held()


def test_hold_has_idle_limit_and_idle_time(tmp_path: Path) -> None:
    hold = Hold(tmp_path)
    assert hold.idle_limit_s == 0
    assert hold.acquire()
    hold.idle_limit_s = 90.0
    assert Hold(tmp_path).idle_limit_s == 90
    os.utime(hold.path, (time.time() - 500,) * 2)
    assert 490 < hold.idle_s() < 600
    hold.release()
    assert hold.idle_s() < 60


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-5", "1e999", "", "ten", "9" * 100])
def test_invalid_idle_limit_is_zero(tmp_path: Path, text: str) -> None:
    private.write(tmp_path / "hold", text)
    assert Hold(tmp_path).idle_limit_s == 0


def test_idle_limit_is_set_in_place(tmp_path: Path) -> None:
    hold = Hold(tmp_path)
    assert hold.acquire()
    hold.idle_limit_s = 12345.5
    hold.idle_limit_s = 1.5
    assert Hold(tmp_path).idle_limit_s == 1.5
    assert Hold(tmp_path).held(), "the lock is on the file"


def test_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "hold").symlink_to(elsewhere)
    hold = Hold(tmp_path)
    assert not hold.acquire(0)
    assert not hold.held()
    assert math.isclose(hold.idle_limit_s, 0)
    with pytest.raises(OSError, match="hold"):
        hold.idle_limit_s = 5.0
    assert not elsewhere.exists()


def test_fifo_in_place_of_the_lock_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hold", 0o600)
    assert not Hold(tmp_path).held()
    assert Hold(tmp_path).idle_limit_s == 0
