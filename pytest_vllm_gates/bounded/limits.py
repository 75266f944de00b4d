"""The limits of files from outside, far beyond what the project and vLLM write."""

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
"""Of a log that is held in memory; one that is only searched may have any size."""
DATABASE_BYTES = 1024 * MIB

DEPTH = 150
"""How deep tables and lists may be nested; Python's parsers give up at about 900."""
DIGITS = 40
"""Of an integer: `tokenizer_config.json` files of released models have some of 31."""
COMPLAINTS = 10
"""Faults of one file that a message lists before it gives a count."""
SHOWN_CHARACTERS = 120
"""Of a value from a file that a message quotes."""


def amount(size: int) -> str:
    """Return a number of bytes for people: "16 MiB", "40 bytes"."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"


def excerpt(value: object) -> str:
    """Return a value as a message quotes it: on one line, its middle left out where it is long."""
    text = repr(value[: 2 * SHOWN_CHARACTERS] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
