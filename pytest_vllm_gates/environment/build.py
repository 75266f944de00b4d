"""Environments made from a lane's lock and kept in a cache, always complete.

An environment lies in the cache as `environments/<lock>-<key>`; the key is a hash of the lock's
text, the Python version and the platform. A changed lock makes a new environment, and the old one
stays unchanged. Each is built in a separate folder and renamed into place under its file lock, so
an environment under its final name is complete, whatever happened to earlier builders.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
import sysconfig
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout
from packaging.specifiers import SpecifierSet

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.limits import TEXT_BYTES
from pytest_vllm_gates.environment import installed, uv
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from packaging.requirements import Requirement

    from pytest_vllm_gates.catalog.lane import Lane

    Progress = Callable[[str], None]

BUILDING = ".building-"
RETRY_S = 1.0


def interpreter(home: Path) -> Path:
    """Return the interpreter of the environment at `home`."""
    return home / "bin" / "python"


def versions(home: Path) -> dict[str, str]:
    """Return what is installed in the environment at `home`."""
    return installed.versions(folders(home))


def folders(home: Path) -> tuple[Path, ...]:
    """Return the folders of packages of the environment at `home`."""
    return tuple(home.glob("lib/python*/site-packages"))


def pinned_requirements(lane: Lane, home: Path) -> dict[str, Requirement]:
    """Return what the lane's lock pins for the Python of the environment at `home`."""
    return installed.pinned_requirements(_lock(lane), python_of(home) or platform.python_version())


def python_of(home: Path) -> str | None:
    """Return the version of the Python that the environment at `home` was made on."""
    config = (home / "pyvenv.cfg").read_text(encoding="utf-8")
    match = re.search(r"^version(?:_info)?\s*=\s*([\d.]+)", config, re.MULTILINE)
    return match[1] if match else None


def python_for(lane: Lane) -> str | None:
    """Return the version of the Python that the lane's environment would be made on, if known."""
    python = _python(lane)
    return python if python[:1].isdigit() else None


def existing_environment(lane: Lane, cache: Path) -> Path | None:
    """Return the folder of the lane's environment, if it was made already."""
    home, _ = _home(lane, cache)
    return home if _is_complete(home) else None


def pinned(lane: Lane) -> dict[str, str]:
    """Return the versions that the lane's lock pins for this machine, installed or not."""
    pins = installed.pinned_requirements(_lock(lane), python_for(lane) or platform.python_version())
    return {
        name: version for name, pin in pins.items() if (version := installed.pinned_version(pin))
    }


def pinned_urls(lane: Lane) -> dict[str, str]:
    """Return the addresses that the lane's lock takes packages from, by the package's name."""
    pins = installed.pinned_requirements(_lock(lane), python_for(lane) or platform.python_version())
    return {name: pin.url for name, pin in pins.items() if pin.url}


def _home(lane: Lane, cache: Path) -> tuple[Path, str]:
    """Return the folder of the lane's environment, made or not, and the Python it is built on."""
    python = _python(lane)
    text = bounded_read.data(_lock(lane), TEXT_BYTES)
    kind = f"\n{python} {sysconfig.get_platform()}".encode()
    key = hashlib.sha256(text + kind).hexdigest()[:12]
    return cache / "environments" / f"{_lock(lane).stem}-{key}", python


def ensure(lane: Lane, cache: Path, progress: Progress) -> tuple[Path, bool]:
    """Return the folder of the lane's environment, and whether it was made just now.

    Raises `UserError` naming the lane, the cause and the next command when it cannot be made.
    """
    home, python = _home(lane, cache)
    if _is_complete(home):
        return home, False
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive(home, lane, progress):
            if _is_complete(home):
                return home, False
            _sweep(home)
            _Build(lane, home, python, cache, progress).make()
            return home, True
    except OSError as error:
        raise UserError(
            f"lane {lane.name}: its environment could not be made: {error.strerror}: "
            f"{error.filename or home}\nsee that {home.parent} can be written and has space, or "
            f"name another folder in VLLM_GATES_CACHE, then run again"
        ) from error


@dataclass(frozen=True)
class _Build:
    """One attempt at making an environment."""

    lane: Lane
    home: Path
    python: str
    cache: Path
    progress: Progress
    started: float = field(default_factory=time.monotonic)

    def make(self) -> None:
        """Build beside `home` and rename into place."""
        folder = self.home.parent / f"{self.home.name}{BUILDING}{os.getpid()}-{time.time_ns()}"
        folder.mkdir()
        try:
            self._log.write_bytes(b"")
            venv = folder / "environment"
            self._uv("making its environment", folder, [
                "venv", "--relocatable", "--no-project", "--python", self.python, str(venv),
            ])  # fmt: skip
            pins = pinned_requirements(self.lane, venv)
            self._install(folder, venv, pins)
            differences = installed.difference(pins, versions(venv))
            if differences:
                raise UserError(
                    f"lane {self.lane.name}: uv's packages differ from {_lock(self.lane)}:\n"
                    f"{installed.bulleted(differences)}\nsee its log: cat {self._log}"
                )
            venv.rename(self.home)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self.progress(f"lane {self.lane.name}: environment made in {self._taken}, {self.home}")

    def _install(self, folder: Path, venv: Path, pins: dict[str, Requirement]) -> None:
        """Install the lock: from the configured sources, else torch from PyTorch's own index.

        The configured sources come first because the user chose them for this machine; a query
        costs a second, and nothing is downloaded before every package was found. Only if they
        answer and lack a build that is not on PyPI (`torch==2.13.0+cpu`), that build is taken from
        PyTorch's index, which uv knows by itself, and then all others from the configured sources.
        Either way the packages are the lock's.
        """
        install = ["pip", "install", "--no-deps", "--compile-bytecode",
                   "--python", str(interpreter(venv))]  # fmt: skip
        from_lock = [*install, "-r", str(_lock(self.lane))]
        result = self._run(folder, from_lock, len(pins))
        backend = self.lane.torch_backend
        lacking = [
            f"{pin.name}{pin.specifier}"
            for pin in pins.values()
            if _is_build(pin) and result.lacks(pin.name)
        ]
        if backend and lacking:
            self._uv(
                f"{' '.join(lacking)} for Python {python_of(venv)} is in no configured source, "
                "and PyTorch's index "
                f"(torch backend {backend!r}) did not give it either",
                folder, [*install, "--torch-backend", backend, *lacking], len(lacking),
            )  # fmt: skip
            result = self._run(folder, from_lock, len(pins))
        self._check(result, "its environment could not be made")

    def _uv(self, task: str, folder: Path, arguments: list[str], count: int = 0) -> None:
        self._check(self._run(folder, arguments, count), task)

    def _run(self, folder: Path, arguments: list[str], count: int) -> uv.UvResult:
        def say(output: str) -> None:
            doing = uv.stage(output, count) if count else "making its environment"
            self.progress(f"lane {self.lane.name}: {doing} ({self._taken})")

        return uv.run(arguments, log=self._log, cwd=folder, say=say)

    def _check(self, result: uv.UvResult, task: str) -> None:
        if result.status:
            needed = self.lane.requires_python or self.python
            raise UserError(uv.explain(
                result, task=f"lane {self.lane.name}: {task}", cache=self.cache, python=needed
            ))  # fmt: skip

    @property
    def _taken(self) -> str:
        return f"{time.monotonic() - self.started:.0f} s"

    @property
    def _log(self) -> Path:
        return self.home.with_name(self.home.name + ".log")


def _lock(lane: Lane) -> Path:
    if lane.lock_path is None:
        raise ValueError(f"lane {lane.name} has no lock")
    return lane.lock_path


def _is_build(pin: Requirement) -> bool:
    """Whether a pin requires a build of a version (`2.13.0+cpu`), which PyPI does not carry."""
    return any(
        specifier.operator == "==" and "+" in specifier.version for specifier in pin.specifier
    )


def _python(lane: Lane) -> str:
    """Return the Python to build on: an installed version, else the one that uv is to fetch.

    It is the one the lane names, else the running one if the lane allows that.
    """
    this_version, lane_version = platform.python_version(), lane.python_version
    if (
        lane_version
        and this_version not in SpecifierSet(f"=={lane_version}.*")
        and (found_version := uv.python(lane_version))
    ):
        return found_version
    allowed = SpecifierSet(lane.requires_python or "")
    return this_version if this_version in allowed else str(allowed)


def _is_complete(home: Path) -> bool:
    # Follows the link: when the Python it was built on is gone, so is the environment.
    return interpreter(home).exists()


@contextlib.contextmanager
def _exclusive(home: Path, lane: Lane, progress: Progress) -> Iterator[None]:
    """Take the file lock of `home`, and report while another run has it."""
    lock = _file_lock(home)
    started = time.monotonic()
    patience_s = 0.0
    while not lock.is_locked:
        try:
            lock.acquire(timeout=patience_s)
        except Timeout:
            waited = time.monotonic() - started
            progress(f"lane {lane.name}: another run is making its environment ({waited:.0f} s)")
            patience_s = RETRY_S
    try:
        yield
    finally:
        lock.release()


def _sweep(home: Path) -> None:
    """Remove leftovers of dead builders, and `home` itself if it is no longer complete."""
    if home.exists():
        home.rename(home.with_name(f"{home.name}{BUILDING}old-{time.time_ns()}"))
    for leftover in home.parent.glob(f"*{BUILDING}*"):
        owner = leftover.with_name(leftover.name.partition(BUILDING)[0])
        if owner == home:
            shutil.rmtree(leftover, ignore_errors=True)
            continue
        with contextlib.suppress(Timeout), _file_lock(owner).acquire(timeout=0):
            shutil.rmtree(leftover, ignore_errors=True)


def _file_lock(home: Path) -> FileLock:
    return FileLock(home.with_name(home.name + ".lock"))
