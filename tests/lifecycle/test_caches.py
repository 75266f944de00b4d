"""Caches are cut, zeroed and made read-only, for root too, and a boot is killed half-way."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.lifecycle import caches

if TYPE_CHECKING:
    from pathlib import Path

WRITES = "import sys; open(sys.argv[1], 'w').write('x')"


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A folder of caches with three files of ten bytes and an empty one."""
    for name in ("vllm/modelinfos/a.json", "vllm/torch_compile_cache/x/b", "triton/c"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(b"0123456789")
    (tmp_path / "triton" / "empty").touch()
    return tmp_path


def test_every_variable_names_a_folder_below(tmp_path: Path) -> None:
    named = caches.variables(tmp_path)
    assert named["VLLM_CACHE_ROOT"] == str(tmp_path / "vllm")
    assert "HF_HOME" not in named  # the weights are there
    assert len({*named.values()}) == len(named) == len(caches.VARIABLES)


def test_every_second_file_is_cut_and_the_others_are_zeros(filled: Path) -> None:
    done = caches.garble(filled)
    assert (done.cut, done.zeroed) == (1, 2)
    assert [path.read_bytes() for path in caches.files(filled)] == [
        b"\0" * 10, b"01234", b"\0" * 10,
    ]  # fmt: skip


def test_a_boot_that_only_looked_at_model_classes_does_not_compile(tmp_path: Path) -> None:
    (tmp_path / "vllm" / "modelinfos").mkdir(parents=True)
    (tmp_path / "vllm" / "modelinfos" / "a.json").write_text("{}")
    assert not caches.compiling(tmp_path)
    (tmp_path / "vllm" / "graph").write_text("x")
    assert caches.compiling(tmp_path)


@pytest.mark.parametrize("name", ["triton/c", "triton/new"])
def test_nothing_is_written_to_read_only_caches(filled: Path, name: str) -> None:
    caches.forbid_writing(filled)
    program = caches.without_override(["-c", WRITES])
    written = subprocess.run(
        [sys.executable, *program, filled / name], capture_output=True, text=True, check=False
    )
    assert "PermissionError" in written.stderr
    caches.allow_writing(filled)
    subprocess.run([sys.executable, *program, filled / name], check=True)
    assert (filled / name).read_text() == "x"
