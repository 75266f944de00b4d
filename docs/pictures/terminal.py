"""Draws what a run printed as an SVG: `pytest ... | python docs/pictures/terminal.py > FILE.svg`.

Shown are the header's lines, a line for what is left out, and all from the gates on, in the colours
of the terminal. The picture needs no font and no address of its own.
"""

from __future__ import annotations

import re
import sys
from html import escape
from typing import TYPE_CHECKING

from pytest_vllm_gates.report.terminal import COLOURS

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS = 100
LINE, CHARACTER, EDGE = 17.0, 7.3, 14.0
"""Pixels: from line to line, from character to character, around all of it."""
SHADES = {"green": "#7ee787", "red": "#ff7b72", "yellow": "#e3b341", "blue": "#79c0ff"}
PLAIN, BEHIND = "#d5dbe2", "#161b22"
NO_BREAK = "\N{NO-BREAK SPACE}"
"""Spaces that no viewer puts together."""
OUTCOME = re.compile(rf"^\S+  \S+ +({'|'.join(map(re.escape, COLOURS))}) |^verdict: (\w+)$")
KNOWN = "  known defect"


def shown(printed: list[str], command: str) -> Iterator[tuple[str, str]]:
    """Yield the picture's lines as (colour, text)."""
    yield "", f"$ {command}"
    # Of the header, what was chosen; the overlay's repairs are in the report.
    head = [line for line in printed if line.startswith("vllm gates:")]
    yield from (("", line) for line in head if " overlay " not in line)
    yield "", "..."
    first = next(at for at, line in enumerate(printed) if OUTCOME.match(line))
    for line in printed[first:]:
        found = OUTCOME.match(line)
        if line.startswith("---"):
            break
        colour = "yellow" if line.startswith(KNOWN) else ""
        if found:
            colour = COLOURS[found[1] or found[2]]
        yield colour, line if len(line) <= COLUMNS else f"{line[: COLUMNS - 3]}..."
    yield "", ""
    yield "", printed[-1]


def drawn(lines: list[tuple[str, str]]) -> str:
    """Return the SVG."""
    width, height = COLUMNS * CHARACTER + 2 * EDGE, len(lines) * LINE + 2 * EDGE
    rows = [
        f'<text x="{EDGE:g}" y="{EDGE + (row + 0.75) * LINE:g}" '
        f'fill="{SHADES.get(colour, PLAIN)}">{escape(text).replace(" ", NO_BREAK)}</text>'
        for row, (colour, text) in enumerate(lines)
        if text
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            f'width="{width:g}" height="{height:g}" role="img" aria-label="{escape(lines[0][1])}">',
            f'<rect width="100%" height="100%" rx="6" fill="{BEHIND}"/>',
            '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" '
            'font-size="12">',
            *rows,
            "</g>",
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    printed = sys.stdin.read().rstrip().splitlines()
    sys.stdout.write(drawn(list(shown(printed, " ".join(sys.argv[1:]) or "pytest"))))
