"""The kinds of option values: how each is read, and how it is written again.

Reading raises `pytest.UsageError` for an invalid text.
"""

from __future__ import annotations

import importlib.util
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_vllm_gates.load.types import Workers

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Given:
    """The value of an option, from the command line or the settings; never an empty one."""

    name: str
    """The option as this run spells it."""
    value: Any
    typed: bool
    """Whether it is from the command line."""
    config: pytest.Config
    settings_root: Path | None = None
    """The folder of the settings, if they are not in the configuration that pytest reads."""


def _once(value: Any) -> tuple[str]:
    return (str(value),)


def _bare(_: Any) -> tuple[None]:
    return (None,)


@dataclass(frozen=True)
class ValueKind:
    """One kind of value."""

    read: Callable[[Given], Any]
    write: Callable[[Any], Iterable[str | None]] = _once
    """Gives the word after each use of the option; None where the option has no value."""
    action: str = "store"
    """The action of argparse."""

    @property
    def ini(self) -> str:
        """The type of the setting."""
        return {"store_true": "bool", "append": "args"}.get(self.action, "string")


def _url(given: Given) -> str:
    """Return a URL that has a host."""
    text: str = given.value
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises ValueError for a port that is not an integer
        whole = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        whole = False
    if not whole:
        raise pytest.UsageError(
            f"{given.name}: expected a URL like http://127.0.0.1:8000/v1, got {text!r}"
        )
    return text


def listed(values: Sequence[str]) -> tuple[str, ...]:
    """Return the names in values that may have several, with commas."""
    names = (name.strip() for value in values for name in value.split(","))
    return tuple(dict.fromkeys(filter(None, names)))


def _variable(given: Given) -> str:
    """Return the name of an environment variable that is set."""
    name: str = given.value
    if name not in os.environ:
        raise pytest.UsageError(
            f"{given.name} names the variable {name!r}, which is not set: export {name}=..."
        )
    return name


def _folder(given: Given) -> Path:
    """Return a folder, relative to the working folder of pytest's call."""
    found = Path(given.config.invocation_params.dir, given.value).resolve()
    # A path that cannot be inspected (too long, for example) is reported when it is written to.
    if os.path.exists(found) and not os.path.isdir(found):  # noqa: PTH110, PTH112 - pathlib raises
        raise pytest.UsageError(f"{given.name} {given.value!r} is a file: name a folder")
    return found


def _path(given: Given) -> Path:
    """Return a path: relative to the working folder if typed, to the settings' folder if set."""
    config = given.config
    settings = given.settings_root or (config.inipath.parent if config.inipath else config.rootpath)
    root = config.invocation_params.dir if given.typed else settings
    return Path(root, given.value).resolve()


def _store(given: Given) -> str:
    """Return the URL of an archive or an object store, or an absolute path."""
    if "://" in given.value:
        from pytest_vllm_gates.gates_store import schemes  # noqa: PLC0415 - few runs have one

        is_archive = given.value.lower().startswith("http")
        return given.value if schemes.is_store(given.value) and not is_archive else _url(given)
    return str(_path(given))


def _seconds(given: Given) -> float:
    """Return a time above zero, in seconds."""
    try:
        found = float(given.value)
    except ValueError:
        found = -1.0
    if not 0 < found < math.inf:
        raise pytest.UsageError(
            f"{given.name}: expected a number of seconds above zero, got {given.value!r}"
        )
    return found


def _redaction(given: Given) -> str:
    """Return one of the ways to treat prompts."""
    from pytest_vllm_gates.redaction.prompts import MODES  # noqa: PLC0415 - an inert plugin is light

    if given.value not in MODES:
        raise pytest.UsageError(
            f"{given.name}: expected one of {', '.join(MODES)}, got {given.value!r}"
        )
    return str(given.value)


def no_workers() -> Workers:
    """Return the default: one process sends the load."""
    from pytest_vllm_gates.load.types import ALONE  # noqa: PLC0415

    return ALONE


def _workers(given: Given) -> Workers:
    """Return the processes that send a load together."""
    from pytest_vllm_gates.load.generator import messages  # noqa: PLC0415
    from pytest_vllm_gates.load.types import ALONE, Workers  # noqa: PLC0415

    name, value = given.name, given.value
    number, far, listen = value.partition("@")
    try:
        found = int(number) if number.isdecimal() else -1
        if far:
            messages.address(listen)
    except ValueError:
        found = -1
    if found < (1 if far else 0):
        raise pytest.UsageError(
            f"{name}: expected a number of workers, got {value!r}: 2 starts two workers here, and "
            "2@HOST:PORT waits at that address for two workers on other machines"
        )
    if found and importlib.util.find_spec("locust") is None:
        raise pytest.UsageError(
            f"{name} needs locust, which is not installed: "
            "pip install 'pytest-vllm-gates[load-workers]'"
        )
    secret = os.environ.get(messages.SECRET_VARIABLE, "") if far else ""
    if far and len(secret) < messages.LEAST_SECRET:
        raise pytest.UsageError(
            f"{name} {value!r} accepts workers that know ${messages.SECRET_VARIABLE}, which has "
            f"{len(secret)} characters and needs at least {messages.LEAST_SECRET}: "
            f"export {messages.SECRET_VARIABLE}=$(openssl rand -hex 32), the same for the workers"
        )
    return Workers(found, listen, secret) if found else ALONE


def _written_workers(workers: Workers) -> tuple[str]:
    far = f"@{workers.listen}" if workers.listen else ""
    return (f"{workers.count}{far}",)


def whole_number(least: int) -> ValueKind:
    """Return the kind of integers from `least` on."""

    def read(given: Given) -> int:
        text: str = given.value
        if not text.isdecimal() or int(text) < least:
            raise pytest.UsageError(f"{given.name}: expected an integer >= {least}, got {text!r}")
        return int(text)

    return ValueKind(read)


@dataclass(frozen=True)
class Endurance:
    """How many requests are sent, or for how long; one of the two is None."""

    requests: int | None
    seconds: float | None


def _endurance(given: Given) -> Endurance:
    """Return a number of requests, or a time with a unit."""
    text: str = given.value
    if text.isdecimal() and int(text):
        return Endurance(int(text), None)
    try:
        seconds = float(text[:-1]) * UNITS_S.get(text[-1], math.nan)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise pytest.UsageError(
            f"{given.name}: expected a number of requests or a duration (2000, 30m, 2h), "
            f"got {text!r}"
        )
    return Endurance(None, seconds)


def _written_endurance(endurance: Endurance) -> tuple[str]:
    if endurance.seconds is None:
        return (str(endurance.requests),)
    return (f"{endurance.seconds:g}s",)


def duration(least_s: float) -> ValueKind:
    """Return the kind of durations with a unit, read as seconds."""

    def read(given: Given) -> float:
        text: str = given.value
        number, unit = (text[:-1], text[-1]) if text[-1] in UNITS_S else (text, "s")
        try:
            found = float(number) * UNITS_S[unit]
        except ValueError:
            found = math.nan
        if not least_s <= found < math.inf:
            raise pytest.UsageError(
                f"{given.name}: expected a duration of at least {least_s:.0f}s (90s, 30m, 2h), "
                f"got {text!r}"
            )
        return found

    return ValueKind(read, lambda seconds: (f"{seconds:g}s",))


TEXT = ValueKind(lambda given: str(given.value))
NAMES = ValueKind(lambda given: listed(given.value), tuple, action="append")
FLAG = ValueKind(lambda _: True, _bare, action="store_true")
OFF = ValueKind(lambda _: False, _bare, action="store_true")
"""A flag that disables something."""
URL = ValueKind(_url)
VARIABLE = ValueKind(_variable)
PATH = ValueKind(_path)
FOLDER = ValueKind(_folder)
STORE = ValueKind(_store)
INCIDENT = ValueKind(lambda given: Path(given.config.invocation_params.dir, given.value).absolute())
SECONDS = ValueKind(_seconds, lambda seconds: (f"{seconds:g}",))
REDACTION = ValueKind(_redaction)
WORKERS = ValueKind(_workers, _written_workers)
ENDURANCE = ValueKind(_endurance, _written_endurance)
