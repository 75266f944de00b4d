"""Parses Python source, by one thread at a time.

CPython 3.11 may raise `SystemError: AST constructor recursion depth mismatch` where two threads
parse at once (python/cpython#106905).
"""

from __future__ import annotations

import ast
import threading

_LOCK = threading.Lock()


def parse(source: str) -> ast.Module:
    """Return the syntax tree; raises `SyntaxError` or `ValueError` as `ast.parse` does."""
    with _LOCK:
        return ast.parse(source)
