"""The limits of files from outside, far above the sizes that the project and vLLM write."""

from __future__ import annotations

KIB, MIB = 2**10, 2**20
VARIABLE = "VLLM_GATES_MAX_FILE_MIB"
"""The environment variable that replaces every limit of a file's bytes, in MiB."""

TOML_BYTES = 512 * KIB
"""Ten times the largest file that ships; Python's parser takes seconds for a few MiB."""
JSON_BYTES = 16 * MIB
"""Parsed, JSON takes up to twenty-five times as much memory."""
TEXT_BYTES = 16 * MIB
GOLDEN_BYTES = 4 * MIB
LOG_BYTES = 64 * MIB
"""For a log in memory; a log that is only searched may have any size."""
DATABASE_BYTES = 1024 * MIB

DEPTH = 150
"""Deepest nesting of tables and lists; Python's parsers give up at about 900."""
DIGITS = 40
"""Most digits of an integer: `tokenizer_config.json` files of released models have up to 31."""
COMPLAINTS = 10
"""Faults of one file that a message lists before it gives a count."""
SHOWN_CHARACTERS = 120
"""Most characters of a file's value in a message."""


def amount(size: int) -> str:
    """Return a number of bytes for people: "16 MiB", "40 bytes"."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"


def excerpt(value: object) -> str:
    """Return a value as quoted in a message: on one line, without the middle if it is long."""
    text = repr(value[: 2 * SHOWN_CHARACTERS] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
