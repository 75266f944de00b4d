"""The flags of /proc/cpuinfo; none where the machine does not tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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


@pytest.mark.parametrize(
    ("of_cpu", "name"),
    [
        (("avx2", "avx512f"), "AMD EPYC"),
        (("avx2",), "AMD EPYC without AVX512"),
        ((), "AMD EPYC"),  # not told, or no x86
    ],
)
def test_cpus_of_one_name_are_told_apart(of_cpu: tuple[str, ...], name: str) -> None:
    assert cpu_flags.named("AMD EPYC", of_cpu) == name
