"""Stores the times of boots in a file, for later comparisons."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.limits import excerpt
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import write_whole
from pytest_vllm_gates.warmup.types import COLD, WARM, WarmupTimes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORMAT = "pytest-vllm-gates/warmup"
VERSION = 1
FOLDER = "warmup"
TIMES = TypeAdapter(WarmupTimes)
RECORD = "record it again: vllm-gates warmup … --record"


def default_file(project: Path, times: WarmupTimes) -> Path:
    """Return the default file for such times."""
    words = f"{times.family}-{times.checkpoint}-{times.lane}"
    return project / FOLDER / (re.sub(r"[^A-Za-z0-9.]+", "-", words) + ".json")


def document(times: WarmupTimes) -> dict[str, Any]:
    """Return times as JSON."""
    return {"format": FORMAT, "version": VERSION, **dataclasses.asdict(times)}


def write(path: Path, times: WarmupTimes) -> None:
    """Write times, whole or not at all."""
    write_whole(path, json.dumps(document(times), indent=1) + "\n")


def read(path: Path) -> WarmupTimes:
    """Return recorded times; raises `UserError` for an incomplete or invalid file."""
    content = bounded_read.json_object(path)
    if content.pop("format", None) != FORMAT or content.pop("version", None) != VERSION:
        raise UserError(f"{path}: it is not {FORMAT} in version {VERSION}\n{RECORD}")
    try:
        times = TIMES.validate_python(content, strict=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{path}: {excerpt(where)}: {first['msg']}\n{RECORD}") from error
    for why in _faults(times):
        raise UserError(f"{path}: {why}\n{RECORD}")
    return times


def _faults(times: WarmupTimes) -> Iterator[str]:
    if not times.boots:
        yield "it has no boot"
    for number, boot in enumerate(times.boots, 1):
        times_s = (boot.health_s, boot.total_s, boot.first_chat_s, boot.next_chat_s)
        figures = (*times_s, *boot.phases_s.values())
        if boot.caches not in (COLD, WARM):
            yield f"the caches of boot {number} are {excerpt(boot.caches)}, not {COLD} or {WARM}"
        if not all(math.isfinite(each) and each >= 0 for each in figures):
            yield f"a time of boot {number} is not a number of seconds >= 0"
