"""Errors as people quote them: wrapped to the width of a page or of a terminal."""

from __future__ import annotations

import re

MOST_BYTES = 256_000
"""The longest text that is read again with its lines joined; servers do not wrap their logs."""
MOST_LINES = 8
WRAPPED_CHARACTERS = 36
"""The shortest line that may continue in the next one."""
# The beginning of a new line, which does not continue the line above.
BEGINS = re.compile(
    r"\s*(?:[>|*#`-]+ +)?(?:\(?[A-Za-z_]\w* ?(?:rank=\d+ )?pid=\d+|\[|\{"
    r"|DEBUG|INFO|WARNING|ERROR|CRITICAL|\d{2,4}-\d\d-|Traceback|File \"|https?://|\$ |#"
    r"|(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception|Warning|Interrupt)\b[:(]"
    r"|During handling|The above exception)"
)
MARGIN = re.compile(r"^\s*(?:[>|]+ ?)*\s*")


def joined(text: bytes, between: str) -> bytes:
    """Return a text with continuation lines joined to the line above; line numbers stay."""
    lines = text.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    result: list[str] = []
    position = 0
    while position < len(lines):
        end = position + 1
        while (
            end < len(lines)
            and end - position < MOST_LINES
            and len(lines[end - 1].rstrip()) >= WRAPPED_CHARACTERS
            and lines[end].strip(" >|`\t")
            and not BEGINS.match(lines[end])
        ):
            end += 1
        whole = [lines[position].rstrip()]
        whole += [MARGIN.sub("", line).rstrip(" `") for line in lines[position + 1 : end]]
        result += [between.join(whole), *[""] * (end - position - 1)]
        position = end
    return "\n".join(result).encode()
