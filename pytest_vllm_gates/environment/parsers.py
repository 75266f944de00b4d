"""The parsers a lane's vLLM knows, read from its source: nothing is imported, nothing booted."""

from __future__ import annotations

import ast
import contextlib
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog.toml import nearest
from pytest_vllm_gates.environment import python_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

# Flag -> the package whose `__init__` registers its parsers in one dictionary (vLLM 0.30 to 0.33).
REGISTRIES = {"reasoning_parser": "reasoning", "tool_call_parser": "tool_parsers"}

PLUGINS = {"reasoning_parser": "reasoning_parser_plugin", "tool_call_parser": "tool_parser_plugin"}


def known_parsers(folders: Iterable[Path], flag: str) -> frozenset[str]:
    """Return the parser names a flag takes; empty if this vLLM keeps them somewhere else."""
    for folder in folders:
        with contextlib.suppress(OSError, SyntaxError):
            source = folder / "vllm" / REGISTRIES[flag] / "__init__.py"
            return _registered(python_source.parse(source.read_text(encoding="utf-8")))
    return frozenset()


def unknown(folders: Iterable[Path], flags: Mapping[str, Any]) -> str | None:
    """Return a sentence on the first parser named in `flags` that this vLLM lacks, or None.

    A parser from the lane's own plugin file is accepted unchecked.
    """
    folders = tuple(folders)
    for flag in REGISTRIES:
        name = flags.get(flag)
        names = known_parsers(folders, flag)
        if name is None or not names or name in names or PLUGINS[flag] in flags:
            continue
        guess = nearest(str(name), names)
        hint = f"did you mean {guess!r}? " if guess else ""
        return (
            f"this vLLM has no {flag.replace('_', ' ')} {name!r}; {hint}"
            f"it knows {', '.join(sorted(names))}"
        )
    return None


def _registered(tree: ast.Module) -> frozenset[str]:
    return frozenset(
        key.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
        for key in node.value.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    )
