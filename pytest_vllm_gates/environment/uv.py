"""Runs uv from pip's configured sources, under the guard, and reports its progress.

uv does not read pip's configuration. A machine whose pip is configured (a mirror, an air gap, a
folder of wheels, a certificate) needs the same for uv, so pip's settings are passed to it.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from uv import find_uv_bin

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.process.process import GuardedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# uv's name for each of pip's settings, and the separator of its values.
WORDS = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "client-cert": ("SSL_CLIENT_CERT", " "),
    "proxy": ("ALL_PROXY", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
}

# If the user set one of these for uv itself, pip's setting is ignored.
SAID_TO_UV = {
    "UV_DEFAULT_INDEX": ("UV_INDEX_URL",),
    "UV_INDEX": ("UV_EXTRA_INDEX_URL",),
    "ALL_PROXY": ("all_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"),
}

# These would change the packages or their place, which the lane decides.
NOT_HANDED_ON = frozenset({
    "CONDA_PREFIX", "UV_BREAK_SYSTEM_PACKAGES", "UV_BUILD_CONSTRAINT", "UV_CONSTRAINT",
    "UV_EXCLUDE", "UV_EXCLUDE_NEWER", "UV_OVERRIDE", "UV_PRERELEASE", "UV_PROJECT", "UV_PYTHON",
    "UV_REQUIRE_HASHES", "UV_RESOLUTION", "UV_SYSTEM_PYTHON", "UV_TORCH_BACKEND",
    "UV_WORKING_DIR", "VIRTUAL_ENV",
})  # fmt: skip


def pip_files(environ: Mapping[str, str]) -> list[Path]:
    """Return the configuration files pip reads on Linux and macOS, the weakest first."""
    named_file = environ.get("PIP_CONFIG_FILE")
    if named_file == os.devnull:
        return []
    home = Path(environ.get("HOME", "~")).expanduser()
    system = [
        Path(folder) / "pip"
        for folder in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")
        if folder
    ]
    user = [home / ".pip", Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip"]
    if sys.platform == "darwin":
        system = [Path("/Library/Application Support/pip")]
        user.append(home / "Library" / "Application Support" / "pip")
    folders = [*system, Path("/etc"), *([] if named_file else user), Path(sys.prefix)]
    return [
        *(folder / "pip.conf" for folder in folders),
        *([Path(named_file)] if named_file else []),
    ]


def pip_settings(files: Iterable[Path], environ: Mapping[str, str]) -> dict[str, str]:
    """Return pip's settings for installing: files, then `PIP_*`; later ones win."""
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for file in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue  # pip itself reports the fault; the other files still count
        for section, values in sections.items():
            if parser.has_section(section):
                values.update((_key(name), value) for name, value in parser.items(section))
    from_environment = {
        _key(name[4:]): value for name, value in environ.items() if name.startswith("PIP_")
    }
    settings = {**sections["global"], **sections["install"], **from_environment}
    if "default-timeout" in settings:
        settings.setdefault("timeout", settings["default-timeout"])
    return {name: value for name, value in settings.items() if value.strip()}


def for_uv(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the environment and the arguments that pass pip's sources to uv.

    In the environment if uv allows it, because an index's URL may contain a password.
    """
    settings = pip_settings(pip_files(environ), environ)
    result = {name: value for name, value in environ.items() if name not in NOT_HANDED_ON}
    for setting, (word, separator) in WORDS.items():
        if setting in settings and not any(
            result.get(name) for name in (word, *SAID_TO_UV.get(word, ()))
        ):
            result[word] = separator.join(settings[setting].split())
    # pip takes the best version of any of its sources; with every version pinned the strategy
    # only decides whether a source that lacks the version ends the search.
    result.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    no_index = settings.get("no-index", "").lower() in {"1", "true", "yes", "on", "y", "t"}
    return result, ["--no-index"] if no_index else []


def _key(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


POLL_S = 0.1
SAY_EVERY_S = 1.0
LAST_LINES = 12
FULL_BYTES = 16 * 2**20
NO_SOLUTION = "No solution found"


@dataclass(frozen=True)
class Cause:
    """A pattern in uv's output, its cause, and the next step."""

    pattern: str
    cause: str
    advice: str


DISK_FULL = Cause(
    r"No space left on device|os error 28|Disk quota exceeded|os error 122",
    "the disk is full",
    "free some space under {cache} and in uv's cache (uv cache clean), then run again; "
    "VLLM_GATES_CACHE and UV_CACHE_DIR move them",
)
CAUSES = (  # the most specific first
    DISK_FULL,
    Cause(
        r"the network was disabled|Network connectivity is disabled",
        "uv runs without the network (offline), and its cache does not have what the lock pins",
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
class UvResult:
    """How a uv command ended."""

    status: int
    output: str

    def lacks(self, package: str) -> bool:
        """Whether the sources answered and uv reports that they lack `package`."""
        _, separator, reason = self.output.partition(NO_SOLUTION)
        return bool(separator) and re.search(rf"\b{re.escape(package)}\b", reason) is not None


def find() -> Path:
    """Return uv's program; raises `UserError` if the uv package is missing."""
    try:
        return Path(find_uv_bin())
    except FileNotFoundError as error:
        raise UserError("uv, which makes environments, is missing\ninstall it: "
                        "python -m pip install uv") from error  # fmt: skip


def python(version: str) -> str | None:
    """Return the whole version of this machine's Python `version` ("3.11"); None without one."""
    env, _ = for_uv(os.environ)
    arguments = ["python", "find", "--system", "--no-project", "--no-python-downloads",
             "--show-version", version]  # fmt: skip
    result = subprocess.run(
        [str(find()), *arguments], env=env, capture_output=True, text=True, check=False
    )
    return result.stdout.strip() or None if result.returncode == 0 else None


def run(arguments: Sequence[str], *, log: Path, cwd: Path, say: Callable[[str], None]) -> UvResult:
    """Run uv with `arguments` until it ends; `say` gets its progress about every second.

    The working folder contains no uv settings, so the caller's project settings do not leak in.
    """
    env, index_arguments = for_uv(os.environ)
    env |= {"NO_COLOR": "1", "UV_NO_PROGRESS": "1"}
    if "pip" not in arguments:
        index_arguments = []
    log.touch()
    start = log.stat().st_size
    process = GuardedProcess([str(find()), *arguments, *index_arguments], env=env, log=log, cwd=cwd)
    try:
        reported_at = -SAY_EVERY_S
        while process.poll() is None:
            if time.monotonic() - reported_at >= SAY_EVERY_S:
                reported_at = time.monotonic()
                say(_since(log, start))
            process.wait(POLL_S)
    finally:
        status = process.stop()
    return UvResult(status, _since(log, start))


def stage(output: str, count: int) -> str:
    """Return the present stage of an install of `count` packages, from its `output` so far."""
    packages = f"{count} packages" if count > 1 else "1 package"
    if re.search(r"^Installed ", output, re.MULTILINE):
        return f"compiling the bytecode of {packages}"
    started = dict(re.findall(r"^Downloading (\S+) \((.+?)\)", output, re.MULTILINE))
    finished = set(re.findall(r"^ Downloaded (\S+)", output, re.MULTILINE))
    waiting = [f"{name} ({size})" for name, size in started.items() if name not in finished]
    if waiting:
        suffix = f" and {len(waiting) - 1} more" if waiting[1:] else ""
        return f"installing {packages}, downloading {waiting[-1]}{suffix}"
    return f"installing {packages}"


def explain(result: UvResult, *, task: str, cache: Path, python: str) -> str:
    """Return why a command failed: the stage, the cause, the next step, uv's last words."""
    causes = [
        candidate
        for candidate in CAUSES
        if re.search(candidate.pattern, result.output, re.IGNORECASE)
    ]
    # On a full disk uv's own words may be missing from its log.
    if shutil.disk_usage(cache).free < FULL_BYTES:
        causes.insert(0, DISK_FULL)
    unknown_cause = Cause("", f"uv ended with status {result.status}", "then run again")
    cause = causes[0] if causes else unknown_cause
    lines = [f"  uv: {line}" for line in result.output.strip().splitlines()[-LAST_LINES:]]
    advice = cause.advice.format(cache=cache, python=python)
    return "\n".join([f"{task}: {cause.cause}", advice, *lines])


def _since(log: Path, start: int) -> str:
    with log.open("rb") as file:
        file.seek(start)
        return file.read().decode("utf-8", "replace")
