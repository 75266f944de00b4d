"""The flags and the generation of /proc/cpuinfo; empty where the machine lists none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.machine import cpu_flags

if TYPE_CHECKING:
    from pathlib import Path

TWO_CPUS = (
    "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n"
    "flags\t\t: fpu avx2 avx512f\n\nprocessor\t: 1\ncpu family\t: 6\nflags\t\t: fpu\n"
)


@pytest.fixture
def cpuinfo(tmp_path: Path) -> Path:
    file = tmp_path / "cpuinfo"
    file.write_text(TWO_CPUS)
    return file


def test_the_first_cpus_flags_are_read(cpuinfo: Path) -> None:
    assert cpu_flags.flags(cpuinfo) == {"fpu", "avx2", "avx512f"}


def test_the_first_cpus_generation_is_read(cpuinfo: Path) -> None:
    assert cpu_flags.generation(cpuinfo) == "family 26 model 2"


def test_generation_is_the_machines_own(cpuinfo: Path) -> None:
    cpuinfo.write_text(TWO_CPUS.replace("family\t: 26", "family\t: 25").replace(": 2\n", ": 17\n"))
    assert cpu_flags.generation(cpuinfo) == "family 25 model 17"


def test_machine_that_lists_neither_has_neither(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nFeatures\t: fp asimd\n")
    for file in (tmp_path / "cpuinfo", tmp_path / "nothing"):
        assert cpu_flags.flags(file) == frozenset()
        assert cpu_flags.generation(file) == ""


@pytest.mark.parametrize(
    ("generation", "of_cpu", "name"),
    [
        ("family 26 model 2", ("avx2", "avx512f"), "AMD EPYC family 26 model 2"),
        ("family 25 model 1", ("avx2",), "AMD EPYC family 25 model 1 without AVX512"),
        ("", (), "AMD EPYC"),  # not listed, or not an x86 CPU
    ],
)
def test_cpus_of_one_name_differ_by_generation(
    generation: str, of_cpu: tuple[str, ...], name: str
) -> None:
    assert cpu_flags.named("AMD EPYC", generation, of_cpu) == name
