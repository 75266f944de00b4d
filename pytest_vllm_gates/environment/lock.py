"""An environment as the lines of a lock: every distribution by name and version, with checksums.

A distribution from a URL or a commit is written with that URL. One that no line can describe is
named: code outside the environment, or code that was edited in place.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from pytest_vllm_gates.environment import uv
from pytest_vllm_gates.redaction.redactor import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_vllm_gates.environment.installed import Distribution

MOST_FILES = 3
PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==(\S+)")
HASH = "--hash="
ASKING = "requesting checksums from the configured sources"


@dataclass(frozen=True)
class Pin:
    """One line of a lock, or why there is none."""

    name: str
    line: str = ""
    problem: str = ""

    @property
    def indexed(self) -> bool:
        """Whether the line has only name and version, so that an index can be queried for it."""
        return PIN.match(self.line) is not None


def pin(distribution: Distribution) -> Pin:
    """Return the line of a lock for a distribution, or why there is none."""
    if problem := _problem(distribution):
        return Pin(
            distribution.name, problem=f"{distribution.name} {distribution.version} {problem}"
        )
    url = str(distribution.direct_url.get("url", ""))
    return Pin(
        distribution.name,
        _from_url(distribution, url) if url else f"{distribution.name}=={distribution.version}",
    )


def _problem(distribution: Distribution) -> str:
    """Return why a lock cannot describe a distribution; nothing if it can."""
    url = str(distribution.direct_url.get("url", ""))
    if distribution.editable:
        return f"is installed editable, from {url}: its code can change at any time"
    if not distribution.recorded:
        return "has no record of its files: neither pip nor uv installed it"
    if edited := [*distribution.changed()]:
        suffix = f" and {len(edited) - MOST_FILES} more" if edited[MOST_FILES:] else ""
        files = ", ".join(edited[:MOST_FILES])
        return f"is not as it was installed: {files}{suffix} was edited or is gone"
    if Redactor().text(url) != url:
        return "was installed from a URL with a password in it"
    if url.startswith("file:") or "dir_info" in distribution.direct_url:
        return f"was installed from {url}, which only this machine has"
    return ""


def _from_url(distribution: Distribution, url: str) -> str:
    """Return the line for a distribution from a repository, at its commit, or from a URL."""
    subdirectory = distribution.direct_url.get("subdirectory")
    fragments = [f"subdirectory={subdirectory}"] if subdirectory else []
    if vcs := distribution.direct_url.get("vcs_info"):
        line = f"{distribution.name} @ {vcs['vcs']}+{url}@{vcs['commit_id']}"
    else:
        archive = distribution.direct_url.get("archive_info") or {}
        hashes = archive.get("hashes") or dict([str(archive.get("hash", "=")).split("=", 1)])
        fragments += [f"sha256={hashes['sha256']}"] if hashes.get("sha256") else []
        line = f"{distribution.name} @ {url.partition('#')[0]}"
    return f"{line}#{'&'.join(fragments)}" if fragments else line


def checksums(
    pins: Iterable[Pin], python: Path, backend: str | None, say: Callable[[str], None]
) -> tuple[Mapping[str, tuple[str, ...]], str]:
    """Return the configured sources' checksums, by name, and why some are missing.

    Nothing is downloaded but the indexes' pages. `backend` is the index of torch's builds, used if
    the sources do not have them.
    """
    wanted_lines = {package.name: package.line for package in pins if package.indexed}
    with tempfile.TemporaryDirectory(prefix="vllm-gates-") as name:
        folder = Path(name)
        (folder / "lock.in").write_text("".join(f"{line}\n" for line in wanted_lines.values()))
        arguments = [
            "pip", "compile", "lock.in", "--no-deps", "--generate-hashes", "--no-header",
            "--no-annotate", "--quiet", "--python", str(python), "-o", "lock.txt",
        ]  # fmt: skip
        for backend_arguments in ([], ["--torch-backend", backend] if backend else None):
            if backend_arguments is None:
                break
            log = folder / "log"
            result = uv.run(
                [*arguments, *backend_arguments], log=log, cwd=folder, say=lambda _: say(ASKING)
            )
            if result.status == 0:
                return _hashes((folder / "lock.txt").read_text(), wanted_lines), ""
        lacking = [line for package, line in wanted_lines.items() if result.lacks(package)]
        if lacking:
            return {}, f"no configured source has {', '.join(lacking)}"
        return {}, "the configured sources cannot be reached"


def _hashes(text: str, wanted_lines: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the checksums in uv's output, of packages that still have the requested version."""
    hashes: dict[str, tuple[str, ...]] = {}
    name = ""
    for line in text.splitlines():
        words = line.strip().removesuffix("\\").strip()
        if matched := PIN.match(words):
            name = canonicalize_name(matched[1])
            if wanted_lines.get(name) != f"{name}=={matched[2]}":
                name = ""
        elif words.startswith(HASH) and name:
            hashes[name] = (*hashes.get(name, ()), words)
    return hashes
