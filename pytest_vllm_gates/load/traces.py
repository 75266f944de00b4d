"""Takes the first requests of a trace, line by line: a file of many gigabytes is not loaded.

What the formats are, and whose, is in `trace_formats`; which of them a file has is told by its
first line.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.load.trace import BatchRequest, TraceSelection
from pytest_vllm_gates.load.trace_formats import Line, reader, recognised

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_vllm_gates.catalog.plans import Traffic
    from pytest_vllm_gates.load.trace import Entry
    from pytest_vllm_gates.load.trace_formats import Format

LONGEST_BYTES = 2**25
"""No line of a trace is longer; a batch file of OpenAI's has 200 MB in all."""
BYTE_ORDER_MARK = "\ufeff"
FEWEST = 2
"""Requests that have a time between them."""


def take(path: Path, traffic: Traffic) -> TraceSelection:
    """Return the requests of a trace that the plan has room for: so many, in so many seconds.

    Raises `UserError` naming file and line, what was found, what was expected and the next step.
    Only what is taken is read, so what is wrong further on stays unseen.
    """
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        raise UserError(f"{path}: the trace is empty\nname one that is not: --load-trace FILE")
    form = recognised(first)
    read = reader(form, first)
    taking = _Taking(traffic)
    for line in lines if form.table else itertools.chain([first], lines):
        if not taking.takes(line, read(line), form):
            break
    if not taking.entries:
        without = f"; {taking.left_out} have no prompt or no answer" if taking.left_out else ""
        raise UserError(
            f"{path}: this {form.name} has no request to replay{without}\n"
            "name a trace that has some: --load-trace FILE"
        )
    if len(taking.entries) < FEWEST and taking.beyond_s:
        speed = math.ceil(10 * taking.beyond_s / traffic.seconds) / 10
        raise UserError(
            f"{path}: the second request comes {taking.beyond_s:g} s after the first, and the plan "
            f"has {traffic.seconds:g} s (load.seconds) at a trace_speed of "
            f"{traffic.trace_speed:g}\nreplay it faster: trace_speed = {speed:g} or more under "
            "[load] of the lane or the family"
        )
    return TraceSelection(str(path), form.name, tuple(taking.entries), taking.left_out)


@dataclass
class _Taking:
    """What has been taken so far."""

    traffic: Traffic

    def __post_init__(self) -> None:
        self.entries: list[Entry] = []
        self.left_out = 0
        self.beyond_s: float | None = None
        """When the first request came that is beyond the plan's seconds."""
        self._begun_s = self._last_s = -math.inf
        self._names: dict[str, int] = {}

    def takes(self, line: Line, entry: Entry, form: Format) -> bool:
        """Take a request; return whether there is room for more."""
        if isinstance(entry, BatchRequest):
            self._once(line, entry)
            self.entries.append(entry)
            return len(self.entries) < self.traffic.requests
        if entry.at_s < self._last_s:
            raise line.wrong(
                f"a time {self._last_s - entry.at_s:g} s before that of the request above it",
                "requests in the order of their times",
                form.sorting(line.path),
            )
        self._last_s = entry.at_s
        if not (entry.prompt_tokens and entry.output_tokens):
            self.left_out += 1
            return True
        if not self.entries:
            self._begun_s = entry.at_s
        at_s = entry.at_s - self._begun_s
        if at_s / self.traffic.trace_speed > self.traffic.seconds:
            self.beyond_s = at_s
            return False
        self.entries.append(replace(entry, at_s=at_s))
        return len(self.entries) < self.traffic.requests

    def _once(self, line: Line, entry: BatchRequest) -> None:
        if entry.name in self._names:
            raise line.wrong(
                f"the custom_id {entry.name!r} of line {self._names[entry.name]}",
                "a custom_id of its own for every request",
            )
        self._names[entry.name] = line.number


def _lines(path: Path) -> Iterator[Line]:
    """Yield a file's lines that hold anything."""
    if not path.is_file():
        what = "is no file" if path.exists() else "does not exist"
        raise UserError(f"--load-trace {path}: {what}\nname a trace: --load-trace FILE")
    try:
        with path.open("rb") as file:
            number = 0
            while data := file.readline(LONGEST_BYTES + 1):
                number += 1
                line = _line(path, number, data)
                if line.text.strip():
                    yield line
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


def _line(path: Path, number: int, data: bytes) -> Line:
    where = f"{path}:{number}"
    if len(data) > LONGEST_BYTES:
        raise UserError(
            f"{where}: found more than {LONGEST_BYTES // 2**20} MiB on a line; expected one request"
            "\nis it a trace? a JSON array is made one by: jq -c '.[]' FILE"
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{where}: found the byte {data[error.start]:#04x} at {error.start}; expected UTF-8\n"
            "unpack it first where it is compressed, or convert it: iconv -t UTF-8"
        ) from error
    return Line(path, number, text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text)
