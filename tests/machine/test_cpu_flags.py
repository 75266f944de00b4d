"""The flags of /proc/cpuinfo; none where the machine does not tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.machine import cpu_flags

if TYPE_CHECKING:
    from pathlib import Path


def test_the_first_cpus_flags_are_read(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("model name\t: x\nflags\t\t: fpu avx2 avx512f\n\nflags\t\t: fpu\n")
    assert cpu_flags.flags(file) == {"fpu", "avx2", "avx512f"}


def test_a_machine_that_tells_none_has_none(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("Features\t: fp asimd\n")
    assert cpu_flags.flags(tmp_path / "cpuinfo") == frozenset()
    assert cpu_flags.flags(tmp_path / "nothing") == frozenset()
