"""How a lock is made from a `.in` file, and how uv's progress and failures are reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from pytest_vllm_gates.environment import installed, relock, uv
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


def narrowed(*lines: str) -> list[str]:
    return [
        str(requirement) for requirement in relock.narrowed(Requirement(line) for line in lines)
    ]


def test_only_packages_for_linux_are_kept() -> None:
    assert narrowed('a==1 ; sys_platform == "win32"', 'b==1 ; platform_machine == "s390x"') == []


def test_marker_that_is_always_true_is_dropped() -> None:
    assert narrowed('a==1 ; sys_platform != "win32"') == ["a==1"]


def test_marker_that_is_sometimes_true_is_kept() -> None:
    line = 'a==1; python_full_version >= "3.12"'
    assert narrowed(line) == [line]


def resolve_to(
    monkeypatch: pytest.MonkeyPatch, universal: tuple[str, ...], this_machine: tuple[str, ...]
) -> None:
    def resolved(path: Path, *arguments: str) -> list[Requirement]:
        assert path
        return [
            Requirement(line)
            for line in (universal if "--universal" in arguments else this_machine)
        ]

    monkeypatch.setattr(relock, "resolved", resolved)


def test_lock_header_has_its_command_and_refusals_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.in"
    path.write_text("vllm==1\n# a reason\ntorch!=2.13.0+cpu\n")
    resolve_to(monkeypatch, ("torch==2.13.0", "vllm==1"), ("torch==2.13.0", "vllm==1"))
    lock = relock.relock(path)
    lines = lock.read_text().splitlines()
    assert lock.name == "mine.txt"
    assert "python -m pytest_vllm_gates.environment.relock mine.in" in lines[1]
    assert lines[2:] == ["torch!=2.13.0+cpu,==2.13.0", "vllm==1"]
    pins = installed.pinned_requirements(lock, "3.12.1")
    assert installed.difference(pins, {"torch": "2.13.0", "vllm": "1"}) == []
    assert installed.difference(pins, {"torch": "2.13.0+cpu", "vllm": "1"}) == [
        "torch 2.13.0+cpu is installed, the lock requires !=2.13.0+cpu,==2.13.0"
    ]


def test_package_lost_by_universal_resolution_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.in"
    path.write_text("vllm==1\n")
    resolve_to(monkeypatch, ("vllm==1",), ("vllm==1", "lost==2"))
    with pytest.raises(UserError, match="the universal resolution lacks lost"):
        relock.relock(path)


def test_markers_are_evaluated_for_the_environments_python(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text('a==1 ; python_version < "3.12"\na==2 ; python_version >= "3.12"\n')
    assert [
        str(pin.specifier) for pin in installed.pinned_requirements(lock, "3.11.7").values()
    ] == ["==1"]
    assert [
        str(pin.specifier) for pin in installed.pinned_requirements(lock, "3.14.0").values()
    ] == ["==2"]


def test_hashes_and_options_of_a_lock_are_ignored(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("--no-index\na==1 \\\n    --hash=sha256:00\nb==2 --hash=sha256:11 # why\n")
    assert list(installed.pinned_requirements(lock, "3.11.7")) == ["a", "b"]


def test_versions_are_read_from_the_names_of_metadata_folders(tmp_path: Path) -> None:
    for name in ("Foo_Bar-1.0.dist-info", "egg-2.0-py3.11.egg-info", "foo", "odd.dist-info"):
        (tmp_path / name).mkdir()
    assert installed.versions([tmp_path / "nothing", tmp_path]) == {"foo-bar": "1.0", "egg": "2.0"}


@pytest.mark.parametrize(
    ("output", "stage"),
    [
        ("", "installing 7 packages"),
        ("Downloading torch (182.9MiB)\n", "installing 7 packages, downloading torch (182.9MiB)"),
        (
            "Downloading torch (1B)\nDownloading triton (2B)\nDownloading vllm (3B)\n"
            " Downloaded vllm\n",
            "installing 7 packages, downloading triton (2B) and 1 more",
        ),
        ("Downloading a (1B)\n Downloaded a\nPrepared 7 packages\n", "installing 7 packages"),
        ("Installed 7 packages in 1ms\n", "compiling the bytecode of 7 packages"),
    ],
)
def test_install_stage_is_read_from_uv_output(output: str, stage: str) -> None:
    assert uv.stage(output, 7) == stage


def test_a_full_disk_is_named_even_when_uv_could_not_report_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        free = 0

    monkeypatch.setattr("shutil.disk_usage", lambda _: Full)
    text = uv.explain(uv.UvResult(2, ""), task="lane x: making it", cache=tmp_path, python="3")
    assert text.startswith("lane x: making it: the disk is full\nfree some space under ")


def test_only_the_last_lines_of_uv_are_quoted(tmp_path: Path) -> None:
    output = "".join(f"line {number}\n" for number in range(50))
    text = uv.explain(uv.UvResult(1, output), task="w", cache=tmp_path, python="3")
    assert text.splitlines()[2] == "  uv: line 38"
    assert text.splitlines()[-1] == "  uv: line 49"
