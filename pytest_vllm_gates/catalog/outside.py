"""Reads the TOML files of users and of incidents: within limits, and without `nan` and `inf`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import limits, read as bounded_read
from pytest_vllm_gates.catalog import toml

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.catalog.toml import RecordT


def load(path: Path, record: type[RecordT], **extra_fields: object) -> RecordT:
    """Read a file into `record`; `extra_fields` are added to its own.

    Raises `UserError` naming the file, the line and, for an unknown key, the nearest known one.
    """
    text, table = read(path)
    return toml.validated(path, text, {**table, **extra_fields}, record)


def read(path: Path) -> tuple[str, dict[str, Any]]:
    """Return a file's text and its table; raises `UserError` for invalid TOML or a large file."""
    return toml.parsed(path, bounded_read.data(path, limits.TOML_BYTES))
