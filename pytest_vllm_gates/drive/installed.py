"""What is installed in an environment, read from its metadata folders, and what its lock wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

METADATA = (".dist-info", ".egg-info")
MAX_LINES = 12


def versions(folders: Iterable[Path]) -> dict[str, str]:
    """Return the version of every distribution in `folders` (an import path), by its name.

    Read from the metadata folders' names alone: nothing is opened, which takes milliseconds where
    `importlib.metadata` takes a second. The first folder that has a distribution counts.
    """
    found: dict[str, str] = {}
    for folder in folders:
        if not folder.is_dir():
            continue
        for entry in sorted(folder.iterdir()):
            name, _, version = entry.stem.partition("-")
            if entry.suffix in METADATA and version:
                # An egg's version may be followed by "-py3.11".
                found.setdefault(canonicalize_name(name), version.partition("-")[0])
    return found


def wanted(lock: Path, python_version: str) -> dict[str, Requirement]:
    """Return what `lock` pins for this machine and `python_version` ("3.11.7"), by name.

    Raises `UserError` for a line that is no requirement or does not pin one version.
    """
    target = {
        "python_full_version": python_version,
        "python_version": ".".join(python_version.split(".")[:2]),
    }
    found: dict[str, Requirement] = {}
    for number, line in enumerate(lock.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.partition(" #")[0].partition(" --hash")[0].strip().removesuffix("\\").strip()
        if not text or text.startswith(("#", "-")):
            continue
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            raise UserError(f"{lock}:{number}: {text!r} is not a requirement: {error}") from error
        if requirement.url is None and not any(
            one.operator in {"==", "==="} and "*" not in one.version
            for one in requirement.specifier
        ):
            raise UserError(f"{lock}:{number}: {text!r} does not pin one version with '=='")
        if requirement.marker is None or requirement.marker.evaluate(target):
            found[canonicalize_name(requirement.name)] = requirement
    return found


def difference(pins: Mapping[str, Requirement], found: Mapping[str, str]) -> list[str]:
    """Return one line for each package of which `found` is not what the lock's `pins` say."""
    lines = []
    for name in sorted({*pins, *found}):
        pin, version = pins.get(name), found.get(name)
        if pin is None:
            lines.append(f"{name} {version} is installed, the lock does not have it")
        elif version is None:
            lines.append(f"{pin.name}{pin.specifier} is missing")
        elif not pin.specifier.contains(version, prereleases=True):
            lines.append(f"{pin.name} {version} is installed, the lock says {pin.specifier}")
    return lines


def bulleted(lines: list[str]) -> str:
    """Return `lines` as a list for a person, cut where it gets long."""
    more = len(lines) - MAX_LINES
    shown = [f"  - {line}" for line in lines[:MAX_LINES]]
    return "\n".join([*shown, f"  … and {more} more"] if more > 0 else shown)
