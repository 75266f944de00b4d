"""Takes the first requests of a trace, line by line: a file of many gigabytes is not loaded.

The formats are in `trace_formats`; the first line of a file decides which one it has.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.limits import JSON_BYTES
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.load.trace import BatchRequest, TraceSelection
from pytest_vllm_gates.load.trace_formats import Line, detect_format, line_reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_vllm_gates.catalog.plans import Traffic
    from pytest_vllm_gates.load.trace import Entry
    from pytest_vllm_gates.load.trace_formats import Format

LONGEST_BYTES = JSON_BYTES
"""The longest line of a trace; a whole batch file of OpenAI's has 200 MB."""
MOST_LEFT_OUT = 10_000_000
"""The most requests without a prompt or an answer that are skipped."""
BYTE_ORDER_MARK = "\ufeff"
FEWEST = 2
"""The number of requests from which there is a time between them."""


def take(path: Path, traffic: Traffic) -> TraceSelection:
    """Return the requests of a trace that fit in the plan: so many, in so many seconds.

    Raises `UserError` naming file and line, what was found, what was expected and the next step.
    Lines after the last request taken are not read, so errors in them are not reported.
    """
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        raise UserError(f"{path}: the trace is empty\nname one that is not: --load-trace FILE")
    trace_format = detect_format(first)
    read_line = line_reader(trace_format, first)
    selection = _Selection(traffic)
    for line in lines if trace_format.table else itertools.chain([first], lines):
        if not selection.add(line, read_line(line), trace_format):
            break
    if not selection.entries:
        without = (
            f"; {selection.left_out} have no prompt or no answer" if selection.left_out else ""
        )
        raise UserError(
            f"{path}: this {trace_format.name} has no request to replay{without}\n"
            "name a trace that has some: --load-trace FILE"
        )
    if len(selection.entries) < FEWEST and selection.beyond_s:
        speed = math.ceil(10 * selection.beyond_s / traffic.seconds) / 10
        raise UserError(
            f"{path}: the second request comes {selection.beyond_s:g} s after the first, and the "
            f"plan has {traffic.seconds:g} s (load.seconds) at a trace_speed of "
            f"{traffic.trace_speed:g}\nreplay it faster: trace_speed = {speed:g} or more under "
            "[load] of the lane or the family"
        )
    return TraceSelection(
        str(path), trace_format.name, tuple(selection.entries), selection.left_out
    )


@dataclass
class _Selection:
    """The requests taken so far."""

    traffic: Traffic

    def __post_init__(self) -> None:
        self.entries: list[Entry] = []
        self.left_out = 0
        self.beyond_s: float | None = None
        """The time of the first request beyond the plan's seconds."""
        self._begun_s = self._last_s = -math.inf
        self._names: dict[str, int] = {}

    def add(self, line: Line, request: Entry, form: Format) -> bool:
        """Take a request; return whether there is room for more."""
        if isinstance(request, BatchRequest):
            self._check_name(line, request)
            self.entries.append(request)
            return len(self.entries) < self.traffic.requests
        if request.at_s < self._last_s:
            raise line.error(
                f"a time {self._last_s - request.at_s:g} s before that of the request above it",
                "requests in the order of their times",
                form.sort_hint(line.path),
            )
        self._last_s = request.at_s
        if not (request.prompt_tokens and request.output_tokens):
            self.left_out += 1
            return self.left_out < MOST_LEFT_OUT
        if not self.entries:
            self._begun_s = request.at_s
        at_s = request.at_s - self._begun_s
        if at_s / self.traffic.trace_speed > self.traffic.seconds:
            self.beyond_s = at_s
            return False
        self.entries.append(replace(request, at_s=at_s))
        return len(self.entries) < self.traffic.requests

    def _check_name(self, line: Line, request: BatchRequest) -> None:
        if request.name in self._names:
            raise line.error(
                f"the custom_id {request.name!r} of line {self._names[request.name]}",
                "a different custom_id for every request",
            )
        self._names[request.name] = line.number


def _lines(path: Path) -> Iterator[Line]:
    """Yield a file's lines that are not blank."""
    if not path.is_file():
        problem = "is not a file" if path.exists() else "does not exist"
        raise UserError(f"--load-trace {path}: {problem}\nname a trace: --load-trace FILE")
    try:
        with bounded_read.opened(path) as file:
            number = 0
            while data := file.readline(LONGEST_BYTES + 1):
                number += 1
                line = _line(path, number, data)
                if line.text.strip():
                    yield line
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


def _line(path: Path, number: int, data: bytes) -> Line:
    place = f"{path}:{number}"
    if len(data) > LONGEST_BYTES:
        raise UserError(
            f"{place}: found more than {LONGEST_BYTES // 2**20} MiB on a line; expected one request"
            "\nis it a trace? a JSON array is made one by: jq -c '.[]' FILE"
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{place}: found the byte {data[error.start]:#04x} at {error.start}; expected UTF-8\n"
            "decompress it first if it is compressed, or convert it: iconv -t UTF-8"
        ) from error
    return Line(path, number, text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text)
