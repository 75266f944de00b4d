"""The house's one rule about imports: they go down only."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pytest_vllm_gates

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(pytest_vllm_gates.__file__).parent
NAME = PACKAGE.name

SHELL = "shell"
# What each part of the house may import, besides itself.
BELOW: dict[str, set[str]] = {
    "facts": set(),
    "judge": {"facts"},
    "miniatures": {"facts"},
    "drive": {"facts", "miniatures"},
    "report": {"facts", "judge"},
    "command": {"facts", "judge", "drive", "report", "miniatures"},
    "gates": {"facts", "judge", "drive", "run", "fixtures"},
    "options": {"facts", "judge", "drive"},
    "run": {"facts", "judge", "drive", "report", "options"},
    "fixtures": {"facts", "judge", "drive", "report", "run"},
    "incidents": {"facts", "judge", "drive", "report", "run", "fixtures"},
    "ending": {"facts", "judge", "drive", "report", "run", "fixtures"},
    SHELL: {
        "facts", "judge", "drive", "report", "miniatures",
        "options", "run", "fixtures", "incidents", "ending",
    },
}  # fmt: skip
OPTIONS = {"options", "option_list", "option_values"}
KNOW_PYTEST = {SHELL, "gates", "options", "run", "fixtures", "incidents", "ending"}
# But for what a run is.
WITHOUT_PYTEST = {"state.py"}
HEAVY = {
    "gevent", "httpx2", "huggingface_hub", "locust", "openai", "packaging", "pydantic", "pynvml",
    "safetensors", "syrupy", "torch", "transformers", "urllib3", "uv",
}  # fmt: skip

# What plugin.py and options.py may import at once.
LIGHT = {f"{NAME}.options", f"{NAME}.option_list", f"{NAME}.option_values"}

# Where locust is imported, and gevent, which patches the standard library.
PATCHED = {"swarm", "user", "worker_run"}

Import = tuple[str, bool, bool]
"""Module, whether it is for types alone, whether it stands at the module's top."""


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """Return what a file imports."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    late = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names]
        for name in names:
            yield name, node in for_types, node not in late


def part(path: Path) -> str:
    """Return the part of the house a file is in; a command line is a shell of its own."""
    inside = path.relative_to(PACKAGE).with_suffix("").parts
    if inside[-1] == "__main__":
        return SHELL
    return inside[0] if len(inside) > 1 else _at_the_top(inside[0])


def part_of(module: str) -> str:
    """Return the part of the house that `pytest_vllm_gates.<...>` names."""
    inner = module.split(".")[1:]
    return inner[0] if inner and inner[0] in BELOW else _at_the_top(inner[0] if inner else "")


def _at_the_top(name: str) -> str:
    return "options" if name in OPTIONS else SHELL


# What the lanes put on the server's import path runs elsewhere.
FILES = [
    path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).parts[0] != "lanes"
]
IDS = [str(path.relative_to(PACKAGE)) for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_imports_go_down_only(path: Path) -> None:
    here = part(path)
    for module, for_types, _ in imports(path):
        if module.split(".")[0] != NAME:
            continue
        there = part_of(module)
        assert there == here or there in BELOW[here] or module == f"{NAME}.__version__", (
            f"{path} is in {here} and imports {module}, which is in {there}"
        )
        if here == "gates" and there in {"run", "fixtures"}:
            assert for_types, f"{path} needs {module} for more than its types: make it a fixture"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_only_the_shell_and_the_gates_know_pytest(path: Path) -> None:
    allowed = part(path) in KNOW_PYTEST and path.name not in WITHOUT_PYTEST
    known = {module.split(".")[0] for module, _, _ in imports(path)}
    assert allowed or not known & {"pytest", "_pytest", "syrupy"}, f"{path} imports pytest"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_what_patches_the_standard_library_is_in_programs_of_its_own(path: Path) -> None:
    if path.parent.name == "measuring" and path.stem in PATCHED:
        return
    for module, for_types, _ in imports(path):
        inner = module.split(".")
        assert for_types or not {"gevent", "locust"} & {inner[0]}, f"{path} imports {module}"
        assert not ("measuring" in inner and PATCHED & {*inner}), f"{path} imports {module}"


@pytest.mark.parametrize("name", ["plugin.py", "options.py", "option_values.py"])
def test_what_an_inert_run_imports_is_light(name: str) -> None:
    for module, for_types, at_top in imports(PACKAGE / name):
        inner = module.split(".")
        if at_top and not for_types and inner[0] == NAME:
            assert module in LIGHT, f"{name} imports {module} at once"
        assert not at_top or inner[0] not in HEAVY, f"{name} imports {module} at once"


def test_every_part_of_the_house_is_known_here() -> None:
    parts = {part(path) for path in FILES}
    assert parts == set(BELOW), "a new part of the house: say here what it may import"
