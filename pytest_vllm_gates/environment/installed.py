"""The installed distributions, read from their metadata folders, and the pins of a lock.

A distribution has its version, its origin, and whether its files are as they were installed.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from packaging.markers import UndefinedComparison
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.limits import excerpt
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

DIST_INFO = ".dist-info"

# Written by the installer, with paths of the machine: not part of the wheel.
INSTALLERS = frozenset(
    {"INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json", "uv_build.json"}
)
COLUMNS = ("path", "checksum", "size")
READ_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Distribution:
    """One installed distribution."""

    name: str
    version: str
    metadata: Path
    """Its folder of metadata."""
    direct_url: dict[str, Any] = field(default_factory=dict)
    """Its origin, if not from an index: PEP 610's document."""

    @property
    def editable(self) -> bool:
        """Whether its code is outside the environment and may change at any time."""
        return bool((self.direct_url.get("dir_info") or {}).get("editable"))

    @property
    def recorded(self) -> bool:
        """Whether it has a record of its files."""
        return (self.metadata / "RECORD").is_file()

    def contents(self) -> str:
        """Return the sha256 of its recorded files: the same for the same wheel on every machine."""
        lines = sorted(f"{path},{digest}" for path, digest, _ in self._files())
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def changed(self) -> Iterator[str]:
        """Yield the files that are missing, or changed since the installation.

        Only the size of libraries of many megabytes is compared: reading a whole CUDA takes
        minutes.
        """
        for path, digest, size in self._files():
            kind, _, expected_digest = digest.partition("=")
            file = self.metadata.parent / path
            try:
                found_size = file.stat().st_size
                unchanged = not size.isdigit() or found_size == int(size)
                if unchanged and kind == "sha256" and found_size <= READ_BYTES:
                    unchanged = _sha256(file) == expected_digest
            except OSError:
                unchanged = False
            if not unchanged:
                yield path

    def _files(self) -> Iterator[tuple[str, str, str]]:
        """Yield path, checksum and size of the wheel's files, without the installer's."""
        try:
            text = (self.metadata / "RECORD").read_text(encoding="utf-8")
        except OSError:
            return
        for row in csv.reader(text.splitlines()):
            if len(row) != len(COLUMNS) or not row[1]:
                continue
            path, digest, size = row
            # Scripts begin with the interpreter's path, which differs between environments.
            in_place = not path.startswith(("..", "/")) and "__pycache__/" not in path
            own_folders = (
                path.startswith(f"{self.metadata.name}/") and path.rpartition("/")[2] in INSTALLERS
            )
            if in_place and not own_folders:
                yield path, digest, size


def installed(folders: Iterable[Path]) -> dict[str, Distribution]:
    """Return the distributions of these folders, by normalised name; the first folder counts."""
    distributions: dict[str, Distribution] = {}
    for folder in folders:
        for metadata in sorted(folder.glob(f"*{DIST_INFO}")) if folder.is_dir() else ():
            name, _, version = metadata.stem.partition("-")
            distribution = Distribution(
                canonicalize_name(name), version, metadata, _direct_url(metadata)
            )
            distributions.setdefault(distribution.name, distribution)
    return distributions


def contents(folders: Iterable[Path]) -> dict[str, str]:
    """Return the checksum of each distribution's files, by name; none without a record of files."""
    return {
        name: distribution.contents()
        for name, distribution in installed(folders).items()
        if distribution.recorded
    }


def _direct_url(metadata: Path) -> dict[str, Any]:
    try:
        document = json.loads((metadata / "direct_url.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _sha256(path: Path) -> str:
    """Return a file's checksum as RECORD spells it."""
    digest = hashlib.sha256(path.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


METADATA = (".dist-info", ".egg-info")
MAX_LINES = 12


def versions(folders: Iterable[Path]) -> dict[str, str]:
    """Return the version of every distribution in `folders` (an import path), by its name.

    Read from the metadata folders' names alone: nothing is opened, which takes milliseconds where
    `importlib.metadata` takes a second. The first folder that has a distribution counts.
    """
    version_of: dict[str, str] = {}
    for folder in folders:
        if not folder.is_dir():
            continue
        for metadata in sorted(folder.iterdir()):
            name, _, version = metadata.stem.partition("-")
            if metadata.suffix in METADATA and version:
                # An egg's version may be followed by "-py3.11".
                version_of.setdefault(canonicalize_name(name), version.partition("-")[0])
    return version_of


def pinned_requirements(lock: Path, python_version: str) -> dict[str, Requirement]:
    """Return the pins of `lock` for this machine and `python_version` ("3.11.7"), by name.

    Raises `UserError` for a line that is not a requirement or does not pin one version.
    """
    target = {
        "python_full_version": python_version,
        "python_version": ".".join(python_version.split(".")[:2]),
    }
    requirements: dict[str, Requirement] = {}
    for number, line in enumerate(bounded_read.text(lock).splitlines(), start=1):
        text = line.partition(" #")[0].partition(" --hash")[0].strip().removesuffix("\\").strip()
        if not text or text.startswith(("#", "-")):
            continue
        try:
            requirement = Requirement(text)
            applies = requirement.marker is None or requirement.marker.evaluate(target)
            requirement.specifier.contains("0")  # a version is parsed only when it is compared
        except (InvalidRequirement, UndefinedComparison, ValueError) as error:
            raise UserError(
                f"{lock}:{number}: {excerpt(text)} is not a requirement: {str(error)[:200]}"
            ) from error
        if requirement.url is None and not any(
            specifier.operator in {"==", "==="} and "*" not in specifier.version
            for specifier in requirement.specifier
        ):
            raise UserError(f"{lock}:{number}: {text!r} does not pin one version with '=='")
        if applies:
            requirements[canonicalize_name(requirement.name)] = requirement
    return requirements


def pinned_version(pin: Requirement) -> str | None:
    """Return the version that a requirement of a lock pins; for a wheel's address, the wheel's."""
    if pin.url is not None:
        try:
            return str(parse_wheel_filename(unquote(urlsplit(pin.url).path.rpartition("/")[2]))[1])
        except ValueError:  # not an address, or not of a wheel
            return None
    return next((each.version for each in pin.specifier if each.operator in {"==", "==="}), None)


def difference(pins: Mapping[str, Requirement], installed_versions: Mapping[str, str]) -> list[str]:
    """Return one line for each package that is installed differently from the lock's `pins`."""
    lines = []
    for name in sorted({*pins, *installed_versions}):
        pin, version = pins.get(name), installed_versions.get(name)
        if pin is None:
            lines.append(f"{name} {version} is installed, the lock does not have it")
        elif version is None:
            lines.append(f"{pin.name}{pin.specifier} is missing")
        elif not pin.specifier.contains(version, prereleases=True):
            lines.append(f"{pin.name} {version} is installed, the lock requires {pin.specifier}")
    return lines


def bulleted(lines: list[str]) -> str:
    """Return `lines` as a list for a person, cut where it gets long."""
    left_out = len(lines) - MAX_LINES
    bullets = [f"  - {line}" for line in lines[:MAX_LINES]]
    return "\n".join([*bullets, f"  … and {left_out} more"] if left_out > 0 else bullets)
