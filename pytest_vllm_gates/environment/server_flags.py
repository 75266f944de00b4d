"""The flags a vLLM takes on its command line, read from its source: nothing is imported.

vLLM gives its server's parser every flag of `engine/arg_utils.py` by name, and one for each field
of the classes called `FrontendArgs` (0.22 to 0.32; the latter moved to `entrypoints/launchers` in
0.29).
"""

from __future__ import annotations

import ast
import contextlib
from typing import TYPE_CHECKING

from pytest_vllm_gates.environment import python_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

ENGINE = "vllm/engine/arg_utils.py"
FRONTENDS = ("vllm/entrypoints/launchers/cli_args.py", "vllm/entrypoints/openai/cli_args.py")
FIELDS_OF = "FrontendArgs"


def installed(folders: Iterable[Path]) -> frozenset[str]:
    """Return the flags of the vLLM in these folders, spelled with `_`.

    Empty if this vLLM keeps them elsewhere.
    """
    for folder in folders:
        if (folder / ENGINE).is_file():

            def read(name: str, folder: Path = folder) -> str | None:
                with contextlib.suppress(OSError, UnicodeDecodeError):
                    return (folder / name).read_text(encoding="utf-8")
                return None

            return of_sources(read)
    return frozenset()


def of_sources(read: Callable[[str], str | None]) -> frozenset[str]:
    """Return the flags of a vLLM whose files `read` returns; None for a file that is missing.

    Empty unless both the engine's and the frontend's are found.
    """
    engine = _flags(read(ENGINE))
    frontend = frozenset[str]().union(*(_flags(read(name)) for name in FRONTENDS))
    return engine | frontend if engine and frontend else frozenset()


def _flags(source: str | None) -> frozenset[str]:
    if source is None:
        return frozenset()
    with contextlib.suppress(SyntaxError, ValueError):
        return frozenset(_named(python_source.parse(source)))
    return frozenset()


def _named(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            for word in node.args:
                if isinstance(word, ast.Constant) and str(word.value).startswith("--"):
                    yield str(word.value)[2:].replace("-", "_")
        elif isinstance(node, ast.ClassDef) and node.name.endswith(FIELDS_OF):
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    yield statement.target.id
