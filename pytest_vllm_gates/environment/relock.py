"""Makes a lane's lock again: `python -m pytest_vllm_gates.environment.relock lanes/cpu.in`.

`uv` resolves `cpu.in` for every machine, without the packages named in `cpu.excludes`, from pip's
configured sources (add the source of a CPU torch there first). Packages that no Linux machine of
the lane would install are dropped, and `cpu.txt` is written beside the others.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import uv
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.environment import uv as environment_uv
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")

LAST_LINES = 8

HEADER = """\
# Every package of the lane, pinned; installed exactly as listed, without resolving dependencies.
# Made from {name} by: python -m pytest_vllm_gates.environment.relock {name}
"""


def targets() -> list[dict[str, str]]:
    """Return the marker values of every kind of machine a lock is made for."""
    return [
        {
            "implementation_name": "cpython",
            "os_name": "posix",
            "platform_machine": machine,
            "platform_python_implementation": "CPython",
            "platform_system": "Linux",
            "python_full_version": f"{python}.1",
            "python_version": python,
            "sys_platform": "linux",
        }
        for python, machine in itertools.product(PYTHONS, MACHINES)
    ]


def resolved(path: Path, *options: str) -> list[Requirement]:
    """Return uv's resolution of `path` (a `.in` file), with further options.

    Raises `UserError` with uv's last words if the requirements cannot be met.
    """
    environ, arguments = environment_uv.for_uv(os.environ)
    excludes = path.with_suffix(".excludes")
    if excludes.exists():
        arguments += ["--excludes", str(excludes)]
    result = subprocess.run(
        [uv.find_uv_bin(), "pip", "compile", str(path), "--quiet", "--no-header",
         "--no-annotate", *arguments, *options],
        env=environ, check=False, capture_output=True, text=True,
    )  # fmt: skip
    if result.returncode:
        words = [line for line in result.stderr.splitlines() if line.strip()]
        last_words = "\n".join(f"  uv: {line}" for line in words[-LAST_LINES:])
        raise UserError(
            f"{path.name}: the configured sources have nothing that meets it (uv ended with status "
            f"{result.returncode})\n{last_words}\nsee your sources: python -m pip config list"
        )
    return [Requirement(line) for line in result.stdout.splitlines() if line.strip()]


def narrowed(requirements: Iterable[Requirement]) -> list[Requirement]:
    """Drop packages that no target installs, and the marker of those that every target installs."""
    kept_requirements = []
    for requirement in requirements:
        marker = requirement.marker
        applies = [marker is None or Marker(str(marker)).evaluate(target) for target in targets()]
        if all(applies):
            requirement.marker = None
        if any(applies):
            kept_requirements.append(requirement)
    return kept_requirements


def refusals(path: Path) -> dict[str, SpecifierSet]:
    """Return the versions that `path` refuses (`torch!=2.13.0+cpu`), by package.

    They stay in the lock: `torch==2.13.0` alone also means a build like `2.13.0+cpu`.
    """
    refused: dict[str, SpecifierSet] = {}
    for line in bounded_read.text(path).splitlines():
        if line.strip() and not line.startswith("#"):
            requirement = Requirement(line.partition(" #")[0])
            refused_builds = [
                str(specifier) for specifier in requirement.specifier if specifier.operator == "!="
            ]
            refused[canonicalize_name(requirement.name)] = SpecifierSet(",".join(refused_builds))
    return refused


def everywhere(path: Path) -> tuple[list[Requirement], list[Requirement]]:
    """Return the resolution of `path` (a `.in` file) for every machine, and the lost packages.

    Universally, uv takes the metadata of one wheel of a release for all machines; lost packages
    are those that only this machine's wheels require.
    """
    requirements = narrowed(resolved(path, "--universal", "--python-version", PYTHONS[0]))
    names = {package.name for package in requirements}
    return requirements, [package for package in resolved(path) if package.name not in names]


def lock_text(path: Path, requirements: Iterable[Requirement]) -> str:
    """Return the text of the lock of `path`, with the builds it refuses."""
    refused_builds = refusals(path)
    lines = [HEADER.format(name=path.name)]
    for requirement in requirements:
        requirement.specifier &= refused_builds.get(requirement.name, SpecifierSet())
        lines.append(f"{requirement}\n")
    return "".join(lines)


def relock(path: Path) -> Path:
    """Resolve `path` (a `.in` file) and write its lock; returns the lock's path."""
    requirements, lost = everywhere(path)
    if lost:
        names = ", ".join(sorted(package.name for package in lost))
        raise UserError(f"{path}: the universal resolution lacks {names}\n"
                        f"name them, with the version and a marker, in {path}")  # fmt: skip
    lock = path.with_suffix(".txt")
    write_whole(lock, lock_text(path, requirements))
    return lock


def main() -> int:
    """Relock every file named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m pytest_vllm_gates.environment.relock",
                                     description=__doc__)  # fmt: skip
    parser.add_argument("files", nargs="+", type=Path, metavar="LANE.in")
    for file in parser.parse_args().files:
        try:
            print(relock(file))
        except UserError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
