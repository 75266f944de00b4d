"""The lines at the end of a run, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def verdict_lines(result: pytest.RunResult) -> list[str]:
    """Return the verdict and its reasons as they are shown."""
    at = next(i for i, line in enumerate(result.outlines) if line.startswith("verdict: "))
    reasons = [line for line in result.outlines[at + 1 :] if line.startswith("  - ")]
    return [result.outlines[at], *reasons]
