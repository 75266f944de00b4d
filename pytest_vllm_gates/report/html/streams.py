"""Streams on a time line: when each piece arrived, and the gaps between them."""

from __future__ import annotations

import itertools
import json
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.report.html.drawing import Drawing, Scale, listing, mapping, number, spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_vllm_gates.report.html.drawing import TextLimits

Piece = tuple[float, str | int]
"""Seconds since the request, and the received text or its number of characters."""
KEY = "streams"
ROWS = 4
"""The most streams drawn one above the other; more could not be distinguished."""
READ_BYTES = 4 * 2**20
ROW_HEIGHT = 58
BAR_HEIGHT = 26
STEP_S = 0.001
LONG_GAP_S = 0.1
LONG_GAP_TIMES = 5
TEXT_CHARACTERS = 60


@dataclass(frozen=True)
class StreamRow:
    """One stream in words and figures."""

    name: str
    says: str
    pieces: tuple[Piece, ...]
    """The pieces in the table: seconds and contents."""
    left_out: int
    gap: tuple[float, float] | None
    """Seconds at which the longest gap begins and ends."""


@dataclass(frozen=True)
class Timeline:
    """Streams on one scale."""

    drawing: Drawing
    rows: tuple[StreamRow, ...]


def timeline(streams: Sequence[tuple[str, Sequence[Piece]]], limits: TextLimits) -> Timeline | None:
    """Lay streams one above the other on one scale of seconds; None if nothing came.

    Each is a name and its pieces in order. The height of a mark shows how much text came at once.
    """
    known = [(name, sorted(pieces, key=lambda pair: pair[0])) for name, pieces in streams if pieces]
    if not known:
        return None
    known = known[:ROWS]
    end = max(STEP_S, *(pieces[-1][0] for _, pieces in known))
    across = Scale(0.0, end)
    rows = tuple(_row(name, pieces, limits) for name, pieces in known)
    drawing = Drawing(
        height=ROW_HEIGHT * len(rows) + 36,
        says=". ".join(f"{row.name}: {row.says}" for row in rows),
    )
    for at, (row, (_, pieces)) in enumerate(zip(rows, known, strict=True)):
        top = at * ROW_HEIGHT
        drawing.text(1, top + 14, row.name, "label")
        _bars(drawing, across, top + 22, pieces, limits)
        if row.gap:
            _gap(drawing, across, top + 22, row.gap)
    _axis(drawing, across, ROW_HEIGHT * len(rows))
    drawing.text(
        50, ROW_HEIGHT * len(rows) + 30, "seconds since the request was sent", "tick", "middle"
    )
    return Timeline(drawing, rows)


def paced(evidence: dict[str, Any]) -> bool:
    """Return whether a check recorded the arrival times of its streams' pieces."""
    return any("times_ms" in mapping(record) for record in listing(evidence.get(KEY)))


def recorded(evidence: dict[str, Any]) -> list[tuple[str, list[Piece]]]:
    """Return the streams that a check recorded, the last first, because it was judged."""
    streams = []
    for record in reversed(listing(evidence.get(KEY))):
        stream = mapping(record)
        name = str(stream.get("what", "a stream"))
        if "pieces" in stream:
            pairs = [pair for pair in listing(stream["pieces"]) if isinstance(pair, list)]
            pieces = [_piece(*pair) for pair in pairs if len(pair) == 2]  # noqa: PLR2004
        else:
            times, sizes = listing(stream.get("times_ms")), listing(stream.get("sizes"))
            pieces = [
                _piece(at / 1000 if number(at) is not None else None, size)
                for at, size in zip(times, sizes, strict=False)
            ]
        streams.append((name, [piece for piece in pieces if piece]))
    return streams


def of_incident(folder: Path) -> list[tuple[str, list[Piece]]]:
    """Return the responses of an incident as they arrived; empty if it has none.

    Reads at most 4 MiB of each; files that are not responses are skipped.
    """
    streams = []
    for path in sorted(
        folder.glob("responses/*.jsonl"), key=lambda path: (len(path.name), path.name)
    ):
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                text = file.read(READ_BYTES)
        except OSError:
            continue
        pieces = []
        for line in text.splitlines():
            try:
                record = mapping(json.loads(line))
            except (ValueError, RecursionError):
                continue  # cut by the limit, or by a run that was killed
            piece = _piece(record.get("at_s"), record.get("text", _bytes_in(record.get("base64"))))
            pieces += [piece] if piece else []
        streams.append((f"response {path.stem}", pieces))
        if len(streams) == ROWS:
            break
    return streams


def _piece(at: Any, content: Any) -> Piece | None:
    seconds = number(at)
    if seconds is None or seconds < 0 or isinstance(content, bool):
        return None
    return (seconds, content) if isinstance(content, str | int) else None


def _bytes_in(encoded: Any) -> int | None:
    """Return the number of bytes in base64; only the size of binary data is shown."""
    return len(encoded) * 3 // 4 if isinstance(encoded, str) else None


def _size(piece: Piece) -> int:
    return len(piece[1]) if isinstance(piece[1], str) else max(0, piece[1])


def _row(name: str, pieces: Sequence[Piece], limits: TextLimits) -> StreamRow:
    gaps = [
        (later[0] - earlier[0], earlier[0], later[0])
        for earlier, later in itertools.pairwise(pieces)
    ]
    longest = max(gaps, default=None)
    usual = statistics.median(gap for gap, _, _ in gaps) if gaps else 0.0
    summary = (
        f"{sum(map(_size, pieces)):,} characters in {len(pieces):,} pieces; the first after "
        f"{seconds(pieces[0][0])}, the last after {seconds(pieces[-1][0])}"
    )
    gap = None
    if longest:
        summary += f"; the longest gap is {seconds(longest[0])}, {seconds(usual)} are usual"
        if longest[0] >= max(LONG_GAP_S, LONG_GAP_TIMES * usual):
            gap = longest[1:]
    listed = spread(pieces, min(limits.items, 40))
    table = tuple(
        (at, content[:TEXT_CHARACTERS] if isinstance(content, str) else content)
        for at, content in listed
    )
    return StreamRow(name, summary, table, len(pieces) - len(listed), gap)


def _bars(
    drawing: Drawing, across: Scale, top: float, pieces: Sequence[Piece], limits: TextLimits
) -> None:
    """Draw the pieces; pieces at the same place are drawn as one."""
    step = max(across.high / limits.marks, 1e-9)
    grouped = [
        (at * step, sum(map(_size, some)))
        for at, some in itertools.groupby(pieces, lambda piece: int(piece[0] / step))
    ]
    most = max(1, *(size for _, size in grouped))
    drawing.line(across.left, top + BAR_HEIGHT, across.right, top + BAR_HEIGHT, "axis")
    for at, size in grouped:
        height = round(4 + (BAR_HEIGHT - 4) * (size / most) ** 0.5, 1)
        drawing.rect(across(at), top + BAR_HEIGHT - height, 0.35, height, "piece")


def _gap(drawing: Drawing, across: Scale, top: float, gap: tuple[float, float]) -> None:
    begin, end = map(across, gap)
    drawing.rect(begin, top, max(0.3, end - begin), BAR_HEIGHT, "gap")
    middle = (begin + end) / 2
    anchor = "start" if middle < 25 else "end" if middle > 75 else "middle"  # noqa: PLR2004
    words = f"nothing for {seconds(gap[1] - gap[0])}"
    place = {"start": begin + 1, "end": end - 1, "middle": middle}[anchor]
    drawing.text(place, top + 17, words, "gap-label", anchor)


def _axis(drawing: Drawing, across: Scale, top: float) -> None:
    for at in _ticks(across):
        drawing.line(across(at), top - 4, across(at), top, "axis")
        anchor = "start" if at == 0 else "end" if across(at) > 90 else "middle"  # noqa: PLR2004
        drawing.text(across(at), top + 14, seconds(at), "tick", anchor)


def _ticks(across: Scale) -> Iterator[float]:
    yield from across.ticks(4)


def seconds(value: float) -> str:
    """Return a time in readable form."""
    if value == 0:
        return "0 s"
    if value < 1:
        return f"{value * 1000:.0f} ms" if value >= 0.001 else "<1 ms"  # noqa: PLR2004
    return f"{value:.2f} s" if value < 10 else f"{value:.0f} s"  # noqa: PLR2004
