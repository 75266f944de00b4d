"""On a full disk a run ends with its verdict, and leaves files whole or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.incidents import read as incident_folders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Fakes, Project

MOST_S = 60
LIMITED = """
import faulthandler, resource, sys
faulthandler.dump_traceback_later(50)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""
HOLD = 6
OPTIONS = (
    "-p", "no:cacheprovider", "--model", "qwen3.5", "-m", "boot", "--gates-report", "out",
    "--require-promotion",
)  # fmt: skip


def whole(folder: Path) -> None:
    """See that every file of a report is whole, and that nothing was left beside them."""
    assert not [*folder.rglob(".*")]
    for path in folder.rglob("verdict.json"):
        json.loads(path.read_text())
    for path in folder.rglob("report.html"):
        assert path.read_text().rstrip().endswith("</html>")
    for path in folder.glob("incidents/*"):
        incident_folders.read(path)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB, where one may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system may be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, kib_left: int) -> None:
    """Leave so many KiB of a disk."""
    status = os.statvfs(folder)
    with (folder / "ballast").open("wb") as file:
        file.write(b"x" * (status.f_bavail * status.f_frsize - kib_left * 1024))


@pytest.mark.parametrize("kib_left", [0, 8, 32, 128])
@pytest.mark.parametrize("faults", ["", "bangs"])
def test_full_disk_leaves_the_verdict(
    project: Project, disk: Path, kib_left: int, faults: str
) -> None:
    project.lane(faults)
    fill(disk, kib_left)
    result = project.pytest(
        "--model", "qwen3.5", "--lane", "fake", "--gates-report", str(disk / "out"),
        "--require-promotion",
    )  # fmt: skip
    text = result.stdout.str() + result.stderr.str()
    assert "INTERNALERROR" not in text
    assert "Traceback" not in text
    assert f"verdict: {'REJECT' if faults else 'PROMOTE'}" in result.outlines
    assert result.ret == bool(faults)
    if kib_left == 0:
        assert "verdict.json was not written: No space left on device" in text
        assert [path.name for path in disk.iterdir()] == ["ballast"]
    whole(disk)


@pytest.mark.parametrize("most_bytes", [1, 1000, 10_000, 100_000])
def test_no_file_can_grow_and_the_verdict_comes(
    tmp_path: Path, fakes: Fakes, most_bytes: int
) -> None:
    argv = [sys.executable, "-c", LIMITED, str(most_bytes), *OPTIONS]
    run = ended([*argv, "--base-url", fakes().base_url], tmp_path, stdout=subprocess.PIPE)
    assert "verdict: HOLD" in run.stdout
    assert run.returncode == HOLD
    for crash in ("INTERNALERROR", "Traceback"):
        assert crash not in run.stdout + run.stderr, run.stdout + run.stderr
    whole(tmp_path / "out")
    if most_bytes < 1000:
        assert "verdict.json was not written: File too large" in run.stdout
        assert not (tmp_path / "out").exists()


def ended(argv: list[str], folder: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end within a minute; one that hangs says where."""
    try:
        return subprocess.run(
            argv, cwd=folder, stderr=subprocess.PIPE, text=True, timeout=MOST_S, check=False, **more
        )
    except subprocess.TimeoutExpired as error:
        said = [part.decode() for part in (error.stdout, error.stderr) if part]
        pytest.fail("\n".join([f"no end after {MOST_S} s", *said]))


def test_output_that_nobody_reads_ends_no_run(tmp_path: Path, fakes: Fakes) -> None:
    argv = [sys.executable, "-m", "pytest", *OPTIONS, "--base-url", fakes().base_url]
    reading, writing = os.pipe()
    os.close(reading)
    run = ended(argv, tmp_path, stdout=writing)
    os.close(writing)
    assert run.returncode == HOLD, run.stderr
    assert "BrokenPipe" not in run.stderr
    assert json.loads((tmp_path / "out" / "verdict.json").read_text())["promotion"] == "HOLD"


def test_output_to_a_full_disk_ends_no_run(tmp_path: Path, fakes: Fakes) -> None:
    argv = [sys.executable, "-m", "pytest", *OPTIONS, "--base-url", fakes().base_url]
    with Path("/dev/full").open("w") as full:
        run = ended(argv, tmp_path, stdout=full)
    assert run.returncode == HOLD, run.stderr
    assert "Traceback" not in run.stderr
    assert json.loads((tmp_path / "out" / "verdict.json").read_text())["promotion"] == "HOLD"
