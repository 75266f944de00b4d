"""What is installed: where each distribution came from, and whether it is as it was installed.

What is installed in an environment, read from its metadata folders, and what its lock wants.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

DIST_INFO = ".dist-info"

# Written by whoever installs, with paths of its own: not what the wheel brought.
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
    """Where it came from, if not from an index: PEP 610's document."""

    @property
    def editable(self) -> bool:
        """Whether its code lies elsewhere and may change at any time."""
        return bool((self.direct_url.get("dir_info") or {}).get("editable"))

    @property
    def recorded(self) -> bool:
        """Whether it says which files it brought."""
        return (self.metadata / "RECORD").is_file()

    def contents(self) -> str:
        """Return the sha256 of what it says it brought: the same wherever the same wheel lies."""
        lines = sorted(f"{path},{digest}" for path, digest, _ in self._files())
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def changed(self) -> Iterator[str]:
        """Yield the files that are missing, or not as they were installed.

        Libraries of many megabytes are held to their size: reading a whole CUDA takes minutes.
        """
        for path, digest, size in self._files():
            kind, _, wanted = digest.partition("=")
            file = self.metadata.parent / path
            try:
                found_size = file.stat().st_size
                same = not size.isdigit() or found_size == int(size)
                if same and kind == "sha256" and found_size <= READ_BYTES:
                    same = _sha256(file) == wanted
            except OSError:
                same = False
            if not same:
                yield path

    def _files(self) -> Iterator[tuple[str, str, str]]:
        """Yield path, checksum and size of what the wheel brought, nothing of the installer's."""
        try:
            text = (self.metadata / "RECORD").read_text(encoding="utf-8")
        except OSError:
            return
        for row in csv.reader(text.splitlines()):
            if len(row) != len(COLUMNS) or not row[1]:
                continue
            path, digest, size = row
            # Scripts begin with the interpreter's path, which is another in each environment.
            in_place = not path.startswith(("..", "/")) and "__pycache__/" not in path
            own = (
                path.startswith(f"{self.metadata.name}/") and path.rpartition("/")[2] in INSTALLERS
            )
            if in_place and not own:
                yield path, digest, size


def installed(folders: Iterable[Path]) -> dict[str, Distribution]:
    """Return what lies in these folders, by normalised name; the first that has it counts."""
    found: dict[str, Distribution] = {}
    for folder in folders:
        for metadata in sorted(folder.glob(f"*{DIST_INFO}")) if folder.is_dir() else ():
            name, _, version = metadata.stem.partition("-")
            distribution = Distribution(
                canonicalize_name(name), version, metadata, _direct_url(metadata)
            )
            found.setdefault(distribution.name, distribution)
    return found


def contents(folders: Iterable[Path]) -> dict[str, str]:
    """Return the checksum of what each distribution brought, by name, of those that say so."""
    return {
        name: distribution.contents()
        for name, distribution in installed(folders).items()
        if distribution.recorded
    }


def _direct_url(metadata: Path) -> dict[str, Any]:
    try:
        found = json.loads((metadata / "direct_url.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


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
            specifier.operator in {"==", "==="} and "*" not in specifier.version
            for specifier in requirement.specifier
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
