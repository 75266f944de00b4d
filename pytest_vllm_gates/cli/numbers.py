"""Reads the numbers of the commands' options."""

from __future__ import annotations

import argparse
import math


def share(text: str) -> float:
    """Return a share above 0, at most 1; raises `argparse.ArgumentTypeError` for another text."""
    value = _number(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0, at most 1, got {text!r}")
    return value


def seconds(text: str) -> float:
    """Return seconds, above 0; raises `argparse.ArgumentTypeError` for another text."""
    value = _number(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None


def whole(text: str) -> int:
    """Return an integer from 0 on; raises `argparse.ArgumentTypeError` for another text."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected an integer >= 0, got {text!r}")
    return int(text)


def positive(text: str) -> int:
    """Return an integer from 1 on; raises `argparse.ArgumentTypeError` for another text."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected an integer >= 1, got {text!r}")
    return int(text)
