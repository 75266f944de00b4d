"""What an option's text means; each raises `pytest.UsageError` for a text that means nothing."""

from __future__ import annotations

import importlib.util
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.load.types import Workers

LEAST_SOAK_S = 30.0
LEAST_IDLE_S = 1.0
UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}


def url(url: str) -> str:
    """Return a URL that has a host; raises `pytest.UsageError` for anything else."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for what is no port
        whole = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        whole = False
    if not whole:
        raise pytest.UsageError(
            f"--base-url {url!r} is not a URL; for example http://127.0.0.1:8000/v1"
        )
    return url


def listed(values: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names in values that may hold several, with commas."""
    names = (name.strip() for value in values or () for name in value.split(","))
    return tuple(dict.fromkeys(filter(None, names)))


def duration(name: str, value: str | None, least_s: float) -> float:
    """Return seconds; 0 for nothing given."""
    if not value:
        return 0.0
    number, unit = (value[:-1], value[-1]) if value[-1] in UNITS_S else (value, "s")
    try:
        found = float(number) * UNITS_S[unit]
    except ValueError:
        found = math.nan
    if not least_s <= found < math.inf:
        raise pytest.UsageError(
            f"{name} {value!r} is no duration of at least {least_s:.0f}s: 90s, 30m, 2h"
        )
    return found


def workers(name: str, value: str | None) -> Workers:
    """Return who shares the sending of a load."""
    from pytest_vllm_gates.load.generator import messages  # noqa: PLC0415
    from pytest_vllm_gates.load.types import ALONE, Workers  # noqa: PLC0415

    number, far, listen = (value or "0").partition("@")
    try:
        found = int(number) if number.isdecimal() else -1
        if far:
            messages.address(listen)
    except ValueError:
        found = -1
    if found < (1 if far else 0):
        raise pytest.UsageError(
            f"{name} {value!r} is no number of workers: 2 starts two here, and 2@HOST:PORT waits "
            "there for two of other machines"
        )
    if found and importlib.util.find_spec("locust") is None:
        raise pytest.UsageError(
            f"{name} needs locust, which is not installed: "
            "pip install 'pytest-vllm-gates[load-workers]'"
        )
    secret = os.environ.get(messages.SECRET_VARIABLE, "") if far else ""
    if far and len(secret) < messages.LEAST_SECRET:
        raise pytest.UsageError(
            f"{name} {value!r} lets in who knows ${messages.SECRET_VARIABLE}, which has "
            f"{len(secret)} characters of at least {messages.LEAST_SECRET}: "
            f"export {messages.SECRET_VARIABLE}=$(openssl rand -hex 32), the same for the workers"
        )
    return Workers(found, listen, secret) if found else ALONE


def redact_prompts(value: str | None) -> str:
    """Return what becomes of prompts: kept, for nothing given."""
    from pytest_vllm_gates.redaction.prompts import KEEP, WAYS  # noqa: PLC0415

    if value and value not in WAYS:
        raise pytest.UsageError(f"--redact-prompts {value!r} is none of {', '.join(WAYS)}")
    return value or KEEP


def seconds(name: str, value: str | None, default: float) -> float:
    """Return seconds above zero; the default for nothing given."""
    if not value:
        return default
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not 0 < found < math.inf:
        raise pytest.UsageError(f"{name} {value!r} is not a number of seconds above zero")
    return found


def count(name: str, value: str | None, default: int, least: int) -> int:
    """Return a whole number from `least` on; the default for nothing given."""
    if not value:
        return default
    if not value.isdecimal() or int(value) < least:
        raise pytest.UsageError(f"{name} {value!r} is not a whole number from {least} on")
    return int(value)


def path(config: pytest.Config, name: str) -> Path | None:
    """Return a path: named from where pytest was called, set from where settings are."""
    if named := config.getoption(name):
        return Path(config.invocation_params.dir, named).resolve()
    settings = config.inipath.parent if config.inipath else config.rootpath
    return Path(settings, found).resolve() if (found := config.getini(name)) else None


def history(config: pytest.Config, default: str, *, off: bool) -> Path | None:
    """Return the file that remembers the verdicts; `default` is its place in the rootdir."""
    return None if off else path(config, "gates_history") or config.rootpath / default
