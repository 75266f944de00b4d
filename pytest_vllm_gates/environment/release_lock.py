"""Resolves the lock of a release of vLLM for a device, with additional pinned packages."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from pytest_vllm_gates.catalog import releases
from pytest_vllm_gates.environment import relock
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import write_together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.catalog.lane import Lane

ATTEMPTS = 4
X86_64 = 'platform_machine == "x86_64"'
TORCH = "torch"


@dataclass(frozen=True)
class ReleaseLock:
    """A lock that is not written yet, with its sources."""

    requirements: str
    """The text of the `.in` file."""
    excludes: str
    """The text of the `.excludes` file; empty if nothing is left out."""
    lock: str

    def files(self, lock: Path) -> dict[Path, str]:
        """Return the files to write, the lock last."""
        files = {lock.with_suffix(".in"): self.requirements}
        if self.excludes:
            files[lock.with_suffix(".excludes")] = self.excludes
        return {**files, lock: self.lock}


def resolve(version: str, device: str, *, name: str, besides: Sequence[str] = ()) -> ReleaseLock:
    """Resolve vLLM `version` for `device` together with the requirements `besides`.

    `name` is the lock's. Raises `UserError` if the configured sources have no such bundle.
    """
    made = releases.table().devices[device]
    _check(besides)
    requirements = [f"{made.package}=={version}", *besides, *made.besides]
    excludes = "".join(f"{package}\n" for package in made.without)
    with tempfile.TemporaryDirectory(prefix="vllm-gates-") as folder:
        source = Path(folder) / f"{name}.in"
        if excludes:
            source.with_suffix(".excludes").write_text(excludes)
        for _ in range(ATTEMPTS):
            text = "".join(f"{line}\n" for line in dict.fromkeys(requirements))
            source.write_text(text)
            found, lost = relock.everywhere(source)
            more = [f"{package} ; {X86_64}" for package in lost]
            if made.backend is None:
                more += _other_builds(found)
            if not more:
                return ReleaseLock(text, excludes, relock.lock_text(source, found))
            requirements += more
    raise UserError(
        f"vLLM {version} on {device}: no lock after {ATTEMPTS} attempts; the last wanted "
        f"{', '.join(more)}\nlook at your sources: python -m pip config list"
    )


def here(
    version: str,
    device: str,
    *,
    name: str = "mixed",
    besides: Sequence[str] = (),
    wheel: str | None = None,
) -> ReleaseLock:
    """Resolve vLLM `version`, or the wheel of vLLM at an address, for this machine alone.

    `name` is the lock's. Raises `UserError` if the configured sources have no such bundle.
    """
    made = releases.table().devices[device]
    _check(besides)
    vllm = f"{made.package} @ {wheel}" if wheel else f"{made.package}=={version}"
    requirements = [vllm, *besides, *made.besides]
    excludes = "".join(f"{package}\n" for package in made.without)
    with tempfile.TemporaryDirectory(prefix="vllm-gates-") as folder:
        source = Path(folder) / f"{name}.in"
        if excludes:
            source.with_suffix(".excludes").write_text(excludes)
        for _ in range(ATTEMPTS):
            text = "".join(f"{line}\n" for line in dict.fromkeys(requirements))
            source.write_text(text)
            found = relock.resolved(source)
            more = _other_builds(found) if made.backend is None else []
            if not more:
                break
            requirements += more
        return ReleaseLock(text, excludes, relock.lock_text(source, found))


def write(lane: Lane, version: str, lock: Path) -> None:
    """Resolve the release that a lane names, and write its lock with its sources."""
    device = lane.device or "cpu"
    write_together(resolve(version, device, name=lock.stem).files(lock))


def _check(lines: Sequence[str]) -> None:
    for line in lines:
        try:
            Requirement(line)
        except InvalidRequirement as error:
            raise UserError(
                f"{line!r} is not a requirement: {str(error).splitlines()[0]}\n"
                "try: --with 'transformers==5.16.1'"
            ) from error


def _other_builds(found: Sequence[Requirement]) -> list[str]:
    """Return requirements that refuse CPU builds of torch, which configured sources may have.

    A pin of only the version also matches such a build.
    """
    return [
        f"{TORCH}!={specifier.version}"
        for package in found
        if package.name == TORCH
        for specifier in package.specifier
        if specifier.operator == "==" and specifier.version.endswith("+cpu")
    ]
