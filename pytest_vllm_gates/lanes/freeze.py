"""Makes a lane from an environment that serves: its lock with checksums, and its inventory.

The inventory is saved beside the frozen lane and lists what was installed then, with checksums.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import __version__
from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.bounded.limits import excerpt
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.catalog.lane import FORMS, MAKING, RELEASE, Lane
from pytest_vllm_gates.catalog.toml import fold
from pytest_vllm_gates.environment import installed, lock as environment_lock
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.redaction.names import names_a_secret
from pytest_vllm_gates.redaction.shown import is_secret_flag, without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.environment.environment import Environment

FORMAT = "pytest-vllm-gates/frozen-lane"
VERSION = 1


def path_of(file: Path) -> Path:
    """Return the path of the inventory of the lane in `file`, whether it exists or not."""
    return file.with_name(f"{file.stem}.inventory.json")


def read(lane: Lane) -> dict[str, Any] | None:
    """Return the lane's inventory; None if it has none.

    Raises `UserError` for a file that is not an inventory.
    """
    place = path_of(lane.file)
    if lane.form not in ("lock", "python") or not place.exists():
        return None
    try:
        inventory = bounded_read.json(place, unique=True, whole=True)
    except FileError as error:
        raise UserError(f"{place}: cannot be read as JSON: {error.why}") from error
    if not isinstance(inventory, dict) or inventory.get("format") != FORMAT:
        raise UserError(
            f"{place}: not an inventory of a frozen lane\n"
            f"write it again: vllm-gates lane freeze {lane.name} --force"
        )
    if inventory.get("version", VERSION) != VERSION:
        raise UserError(
            f"{place}: an inventory of version {excerpt(inventory['version'])}, and this "
            f"pytest-vllm-gates reads version {VERSION}: use the one that wrote it"
        )
    if not isinstance(inventory.get("contents") or {}, dict):
        raise UserError(
            f"{place}: contents: expected a table of packages, got "
            f"{excerpt(inventory['contents'])}\n"
            f"write it again: vllm-gates lane freeze {lane.name} --force"
        )
    return inventory


def contents(lane: Lane) -> dict[str, str]:
    """Return the checksum of each package's files when the lane was frozen."""
    recorded = read(lane) or {}
    return {str(name): str(digest) for name, digest in (recorded.get("contents") or {}).items()}


def tampered(lane: Lane, folders: Sequence[Path]) -> list[str]:
    """Return the packages in `folders` that are other builds than when the lane was frozen."""
    recorded = contents(lane)
    if not recorded or not folders:
        return []
    digests = installed.contents(folders)
    return [
        name for name in sorted(recorded) if digests.get(name, recorded[name]) != recorded[name]
    ]


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
BACKEND = re.compile(r"\+(cpu|cu\d+|xpu|rocm[\d.]+)$")
HEADER = """\
# Every package of the lane, pinned; installed exactly as listed, without resolving dependencies.
# Frozen on {date} from {python}, Python {version}.
"""
TITLE = "frozen on {date} from {python}"


@dataclass(frozen=True)
class FrozenLane:
    """A lane that is not written yet."""

    files: Mapping[Path, str]
    """The files to write, the lane's own file last: with it the lane exists."""
    packages: int
    checked: int
    """Packages that have a checksum in the lock."""
    notes: tuple[str, ...]


def target(
    name: str,
    project: Path,
    lanes_by_name: Mapping[str, Path],
    *,
    force: bool,
    command: str = "",
) -> Path:
    """Return the file that a frozen lane will have; `command` is the user's command line.

    Raises `UserError` for an invalid name, and for a name that is taken unless `force` is set.
    """
    if not NAME.fullmatch(name):
        raise UserError(
            f"lane name {name!r}: letters, digits, '.', '_' and '-' only\n"
            "try: vllm-gates lane freeze stable"
        )
    taken_name = next((known for known in lanes_by_name if fold(known) == fold(name)), None)
    if taken_name is not None and (taken_name != name or not force):
        hint = (
            ""
            if taken_name != name
            else f"\nor write over it: {command or f'vllm-gates lane freeze {name}'} --force"
        )
        raise UserError(
            f"there is a lane {taken_name!r} already: {lanes_by_name[taken_name]}\n"
            f"take another name{hint}"
        )
    return project / "lanes" / f"{name}.toml"


def compose(
    file: Path,
    environment: Environment,
    *,
    source: Lane | None,
    variables: Iterable[str],
    keep_python: bool,
    inventory: Mapping[str, Any],
    say: Callable[[str], None],
) -> FrozenLane:
    """Return a lane that serves with this environment, and in all else as `source` does.

    `variables` are NAME, taken from this process, or NAME=VALUE. With `keep_python` the lane names
    the interpreter and has no lock. Raises `UserError` for packages that a lock cannot describe.
    """
    assert environment.python is not None  # noqa: S101 - there is none to freeze without
    say("reading what is installed")
    distributions = installed.installed(environment.folders)
    pins = [environment_lock.pin(distribution) for distribution in distributions.values()]
    missing = sorted({*environment.versions} - {*distributions})
    problems = [pin.problem for pin in pins if pin.problem]
    problems += [
        f"{name} {environment.versions[name]} has no metadata of pip's or uv's" for name in missing
    ]
    date = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    template_fields = {"date": date, "python": str(environment.python)}
    table, notes = _table(source, variables)
    table["title"] = TITLE.format(**template_fields)
    files: dict[Path, str] = {}
    hashes: Mapping[str, tuple[str, ...]] = {}
    if keep_python:
        table["python"] = str(environment.python)
        notes += [f"not in the lock: {problem}" for problem in problems]
    else:
        if problems:
            raise UserError(
                f"a lock cannot describe {environment.python}:\n{installed.bulleted(problems)}\n"
                "install these from an index, or name the interpreter in the lane instead of a "
                "lock, which does not pin the packages: --keep-python"
            )
        lock = file.with_suffix(".txt")
        table |= _own_lock(lock.name, environment)
        hashes, reason = environment_lock.checksums(
            pins, environment.python, table.get("torch_backend"), say
        )
        notes += [f"{pin.line}: the lock names its URL" for pin in pins if not pin.indexed]
        notes += _without(pins, hashes, reason)
        header = HEADER.format(**template_fields, version=environment.python_version)
        files[lock] = header + "".join(_lines(pin, hashes) for pin in pins)
    files[path_of(file)] = _inventory(environment, distributions, source, inventory, files)
    files[file] = _toml(file, table)
    return FrozenLane(files, len(pins), len(hashes), tuple(notes))


def _table(source: Lane | None, variables: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the tables that the lane takes from another lane, and notes on what is left out."""
    table: dict[str, Any] = {}
    if source is not None:
        table = source.model_dump(mode="json", exclude_unset=True)
        for key in ("name", "file", *FORMS, *MAKING, *RELEASE):
            table.pop(key, None)
    notes = []
    for key, is_secret in (("env", names_a_secret), ("serve", is_secret_flag)):
        if key in table:
            table[key], left_out = without_secrets(table[key], is_secret)
            notes += [f"left out because it is a secret: {name} in [{key}]" for name in left_out]
    if assigned := dict(map(_variable, variables)):
        table["env"] = table.get("env", {}) | assigned
    return table, notes


def _variable(assignment: str) -> tuple[str, str]:
    name, assigned, value = assignment.partition("=")
    if names_a_secret(name):
        raise UserError(
            f"{name} looks like a secret, and a lane's file must not contain one\n"
            f"export {name} where the lane serves"
        )
    if not assigned and name not in os.environ:
        raise UserError(f"{name} is not set here\ngive its value: --env {name}=VALUE")
    return name, value if assigned else os.environ[name]


def _own_lock(name: str, environment: Environment) -> dict[str, str]:
    """Return the keys of a lane that is made from its lock, as this environment was made."""
    major, minor, *_ = (environment.python_version or "").split(".")
    table = {"lock": name, "requires_python": f"=={major}.{minor}.*"}
    if build := BACKEND.search(environment.versions.get("torch", "")):
        table["torch_backend"] = build[1]
    return table


def _without(
    pins: Iterable[environment_lock.Pin], hashes: Mapping[str, tuple[str, ...]], reason: str
) -> list[str]:
    without = [pin.line for pin in pins if pin.indexed and pin.name not in hashes]
    if not without:
        return []
    packages = "all packages" if not hashes else ", ".join(without)
    return [f"without a checksum in the lock: {packages} ({reason or 'its source gives none'})"]


def _lines(pin: environment_lock.Pin, hashes: Mapping[str, tuple[str, ...]]) -> str:
    return " \\\n    ".join([pin.line, *hashes.get(pin.name, ())]) + "\n"


def _inventory(
    environment: Environment,
    distributions: Mapping[str, installed.Distribution],
    source: Lane | None,
    inventory: Mapping[str, Any],
    files: Mapping[Path, str],
) -> str:
    document = {
        "format": FORMAT,
        "version": VERSION,
        "tool": {"name": "pytest-vllm-gates", "version": __version__},
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "lane": source.name if source else None,
        "python": str(environment.python),
        "python_version": environment.python_version,
        "lock_sha256": {
            path.name: hashlib.sha256(text.encode()).hexdigest() for path, text in files.items()
        },
        **inventory,
        "versions": dict(environment.versions),
        "contents": {
            name: distribution.contents()
            for name, distribution in distributions.items()
            if distribution.recorded
        },
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _toml(file: Path, table: dict[str, Any]) -> str:
    import tomli_w  # noqa: PLC0415 - only where a lane is written

    leading_keys = ["title", "lock", "python", "command", *MAKING]
    ordered = {name: table[name] for name in sorted(table, key=_place(leading_keys))}
    text = tomli_w.dumps(ordered)
    toml.validated(file, text, {**ordered, "name": file.stem, "file": file}, Lane)
    return text


def _place(leading_keys: list[str]) -> Callable[[str], tuple[int, str]]:
    return lambda name: (
        leading_keys.index(name) if name in leading_keys else len(leading_keys),
        name,
    )
