"""What is installed: where each distribution came from, and whether it is as it was installed."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
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
            one = Distribution(canonicalize_name(name), version, metadata, _direct_url(metadata))
            found.setdefault(one.name, one)
    return found


def contents(folders: Iterable[Path]) -> dict[str, str]:
    """Return the checksum of what each distribution brought, by name, of those that say so."""
    return {name: one.contents() for name, one in installed(folders).items() if one.recorded}


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
