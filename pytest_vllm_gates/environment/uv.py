"""Runs uv: under the guard, from pip's configured sources, saying how far it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from uv import find_uv_bin

from pytest_vllm_gates.drive import sources
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.process.process import GuardedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

POLL_S = 0.1
SAY_EVERY_S = 1.0
LAST_LINES = 12
FULL_BYTES = 16 * 2**20
NO_SOLUTION = "No solution found"


@dataclass(frozen=True)
class Cause:
    """What a pattern in uv's output betrays, and what to do about it."""

    pattern: str
    cause: str
    advice: str


DISK_FULL = Cause(
    r"No space left on device|os error 28|Disk quota exceeded|os error 122",
    "the disk is full",
    "free some space under {cache} and in uv's cache (uv cache clean), then run again; "
    "VLLM_GATES_CACHE and UV_CACHE_DIR move them",
)

CAUSES = (  # the most telling first
    DISK_FULL,
    Cause(
        r"the network was disabled|Network connectivity is disabled",
        "uv is told to do without the network, and its cache does not have what the lock pins",
        "unset UV_OFFLINE (or offline in uv's configuration), then run again",
    ),
    Cause(
        r"no wheels with a matching Python",
        "the configured package sources have no build for this Python of what the lock pins",
        "install another Python that the lane allows ({python}) and name it as the lane's "
        "python_version; or see your sources: python -m pip config list",
    ),
    Cause(
        NO_SOLUTION,
        "the configured package sources do not have what the lock pins",
        "see your sources: python -m pip config list; "
        "add one: python -m pip config set global.extra-index-url URL",
    ),
    Cause(
        r"Failed to fetch|error sending request|dns error|connection|timed out|offline",
        "a package index cannot be reached",
        "check the network and the sources (python -m pip config list), then run again; what was "
        "downloaded is kept",
    ),
    Cause(
        r"No interpreter found|No download found|managed Python",
        "no suitable Python is installed and none could be fetched",
        "install a Python {python}, then run again",
    ),
)


@dataclass(frozen=True)
class Done:
    """How a uv command ended."""

    status: int
    output: str

    def lacks(self, package: str) -> bool:
        """Whether the sources answered and uv names `package` as what they do not have."""
        _, found, reason = self.output.partition(NO_SOLUTION)
        return bool(found) and re.search(rf"\b{re.escape(package)}\b", reason) is not None


def find() -> Path:
    """Return uv's program; raises `UserError` where the uv package has none."""
    try:
        return Path(find_uv_bin())
    except FileNotFoundError as error:
        raise UserError("uv, which makes environments, is missing\ninstall it: "
                        "python -m pip install uv") from error  # fmt: skip


def python(version: str) -> str | None:
    """Return the whole version of this machine's Python `version` ("3.11"), None without one."""
    env, _ = sources.for_uv(os.environ)
    asked = ["python", "find", "--system", "--no-project", "--no-python-downloads",
             "--show-version", version]  # fmt: skip
    done = subprocess.run(
        [str(find()), *asked], env=env, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None if done.returncode == 0 else None


def run(arguments: Sequence[str], *, log: Path, cwd: Path, say: Callable[[str], None]) -> Done:
    """Run uv with `arguments` until it ends; `say` hears about every second how far it is.

    The working folder holds no project's uv settings, so those of whoever calls do not leak in.
    """
    env, more = sources.for_uv(os.environ)
    env |= {"NO_COLOR": "1", "UV_NO_PROGRESS": "1"}
    if "pip" not in arguments:
        more = []
    log.touch()
    start = log.stat().st_size
    process = GuardedProcess([str(find()), *arguments, *more], env=env, log=log, cwd=cwd)
    try:
        said_at = -SAY_EVERY_S
        while process.poll() is None:
            if time.monotonic() - said_at >= SAY_EVERY_S:
                said_at = time.monotonic()
                say(_since(log, start))
            process.wait(POLL_S)
    finally:
        status = process.stop()
    return Done(status, _since(log, start))


def stage(output: str, count: int) -> str:
    """Return what an install of `count` packages that has said `output` is doing."""
    packages = f"{count} packages" if count > 1 else "1 package"
    if re.search(r"^Installed ", output, re.MULTILINE):
        return f"compiling the bytecode of {packages}"
    begun = dict(re.findall(r"^Downloading (\S+) \((.+?)\)", output, re.MULTILINE))
    ended = set(re.findall(r"^ Downloaded (\S+)", output, re.MULTILINE))
    waiting = [f"{name} ({size})" for name, size in begun.items() if name not in ended]
    if waiting:
        more = f" and {len(waiting) - 1} more" if waiting[1:] else ""
        return f"installing {packages}, downloading {waiting[-1]}{more}"
    return f"installing {packages}"


def explain(done: Done, *, what: str, cache: Path, python: str) -> str:
    """Return why a command failed: what was being done, the cause, what to do, uv's last words."""
    known = [one for one in CAUSES if re.search(one.pattern, done.output, re.IGNORECASE)]
    # On a full disk uv's own words may not have reached its log.
    if shutil.disk_usage(cache).free < FULL_BYTES:
        known.insert(0, DISK_FULL)
    unknown = Cause("", f"uv ended with status {done.status}", "then run again")
    found = known[0] if known else unknown
    lines = [f"  uv: {line}" for line in done.output.strip().splitlines()[-LAST_LINES:]]
    advice = found.advice.format(cache=cache, python=python)
    return "\n".join([f"{what}: {found.cause}", advice, *lines])


def _since(log: Path, start: int) -> str:
    with log.open("rb") as file:
        file.seek(start)
        return file.read().decode("utf-8", "replace")
