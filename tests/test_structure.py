"""The properties of the layout: sizes, imports, purity, names. ARCHITECTURE.md describes them."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import pytest_vllm_gates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PACKAGE = Path(pytest_vllm_gates.__file__).parent
NAME = PACKAGE.name
MOST_MODULES = 25
MOST_LINES = 320

# The modules of one pytest run, from the highest to the lowest. A topic imports none of them.
RUN = ("plugin", "pytest_hooks", "cli", "gates", "fixtures", "session", "options")
# What each of them may import of the others.
BELOW: dict[str, set[str]] = {
    "__init__": {"fixtures", "session"},  # the public API, imported when it is used
    "plugin": {"pytest_hooks", "session", "options"},
    "pytest_hooks": {"fixtures", "session", "options"},
    "cli": set(),
    "gates": {"fixtures", "session"},
    "fixtures": {"session", "options"},
    "session": {"options"},
    "options": set(),
}
KNOW_PYTEST = {
    "plugin",
    "pytest_hooks",
    "gates",
    "fixtures",
    "session",
    "options",
}
# A run's record is passed on to code that does not know pytest.
WITHOUT_PYTEST = {"session.run"}

# Rules import none of these, not even through another module.
DOES_IO = {
    "_pytest", "anthropic", "asyncio", "concurrent", "gevent", "http", "httpx2", "huggingface_hub",
    "locust", "multiprocessing", "openai", "os", "pynvml", "pytest", "requests", "select",
    "selectors", "shutil", "socket", "sqlite3", "ssl", "subprocess", "syrupy", "tempfile",
    "threading", "transformers", "urllib", "uv", f"{NAME}.files",
}  # fmt: skip
# An inert plugin imports none of these.
HEAVY = {
    "anthropic", "gevent", "httpx2", "huggingface_hub", "locust", "openai", "packaging", "pydantic",
    "pynvml", "safetensors", "syrupy", "torch", "transformers", "urllib3", "uv",
}  # fmt: skip
LIGHT = {
    f"{NAME}.options{name}"
    for name in (
        "", ".defaults", ".judging", ".kinds", ".names", ".read", ".record", ".serving", ".table",
    )
}  # fmt: skip
# Programs of their own that import locust, and gevent, which patches the standard library.
PATCHED = {f"load.generator.{name}" for name in ("locust_master", "locust_user", "worker_program")}


class Import(NamedTuple):
    """One imported module or name."""

    name: str
    typed: bool
    """Whether it is imported for annotations alone."""
    top: bool
    """Whether it stands at the module's top level."""


def module_name(path: Path) -> str:
    """Return a module's dotted name without the package's."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


# The servers' own Python imports what lies in a lane's overlay.
FILES = {
    module_name(path): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if not any(part.endswith("-overlay") for part in path.parts)
}
MODULES = {name: path for name, path in FILES.items() if path.name != "__init__.py"}
PURE = [
    name
    for name, path in MODULES.items()
    if path.stem == "types" or path.stem.startswith("checks") or path.parent.name == "checks"
]


@cache
def imports(path: Path) -> tuple[Import, ...]:
    return tuple(_imports(ast.parse(path.read_text(encoding="utf-8")), path))


def _imports(tree: ast.Module, path: Path) -> Iterator[Import]:
    typed = {
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
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            yield Import(name, node in typed, node not in late)


def imported_module(name: str) -> str | None:
    """Return the package's module that an imported name is, or is in; None for other packages."""
    inner = name.removeprefix(f"{NAME}.")
    if inner == name:
        return None
    return inner if inner in FILES else inner.rpartition(".")[0]


def own_imports(module: str, *, typed: bool = True) -> set[str]:
    """Return the package's modules that a module imports, with those for annotations alone."""
    names = {
        imported_module(imported.name)
        for imported in imports(FILES[module])
        if typed or not imported.typed
    }
    return {name for name in names if name and name != module}


def folder_of(module: str) -> str:
    """Return the folder of a module, its own name where it lies at the top."""
    return module.partition(".")[0]


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the strongly connected components with more than one member (Tarjan, 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for following in graph.get(node, ()):
            if following not in index:
                visit(following)
                low[node] = min(low[node], low[following])
            elif following in stack:
                low[node] = min(low[node], index[following])
        if low[node] == index[node]:
            members = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(members) > 1:
                groups.append(sorted(members))

    for node in graph:
        if node not in index:
            visit(node)
    return groups


def test_folders_hold_at_most_25_modules() -> None:
    sizes = Counter(path.parent.relative_to(PACKAGE).as_posix() for path in MODULES.values())
    assert {name: size for name, size in sizes.items() if size > MOST_MODULES} == {}


def test_files_have_at_most_320_lines() -> None:
    lengths = {
        name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in FILES.items()
    }
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def test_folder_names_are_unique() -> None:
    names = Counter(path.parent.name for path in FILES.values() if path.name == "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []


def test_files_import_in_no_circle() -> None:
    assert circles({module: own_imports(module) for module in FILES}) == []


def test_folders_import_in_no_circle() -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for module in FILES:
        graph[folder_of(module)] |= {folder_of(name) for name in own_imports(module)}
    assert circles({name: to - {name} for name, to in graph.items()}) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["a"]}) == [["b", "c"]]


# Each of these tests looks at every module: a test for each would be 2,500, most of whose time is
# pytest's own.


def test_rules_and_records_do_no_io() -> None:
    assert [chain for module in PURE for chain in _chains_to_io(module)] == []


def _chains_to_io(module: str) -> Iterator[str]:
    chains = {module: [module]}
    waiting = [module]
    while waiting:
        module_name = waiting.pop()
        for imported in imports(FILES[module_name]):
            if imported.typed:
                continue
            if {imported.name.partition(".")[0], imported.name} & DOES_IO:
                yield " imports ".join([*chains[module_name], imported.name])
            name = imported_module(imported.name)
            if name and name not in chains:
                chains[name] = [*chains[module_name], name]
                waiting.append(name)


def test_rules_and_records_are_found() -> None:
    assert {"numerics.checks", "load.types", "conversations.checks.stops"} <= set(PURE)


def test_class_names_are_unique() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module, path in FILES.items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


def test_imports_go_down() -> None:
    assert [
        f"{module} imports {name}"
        for module in FILES
        if folder_of(module) and module != "miniatures.__main__"
        for name in own_imports(module)
        if not _may_import(folder_of(module), folder_of(name))
    ] == []


def _may_import(folder: str, other: str) -> bool:
    if other == folder:
        return True
    return other not in {"gates", "cli"} and (other not in RUN or other in BELOW.get(folder, ()))


def test_gates_import_the_session_and_fixtures_for_types_alone() -> None:
    assert [
        f"{module} imports {name}: make it a fixture"
        for module in FILES
        if folder_of(module) == "gates"
        for name in own_imports(module, typed=False)
        if folder_of(name) in RUN and folder_of(name) != "gates"
    ] == []


def _is_shared_fixture(node: ast.FunctionDef) -> bool:
    return any('scope="' in ast.unparse(each).replace("'", '"') for each in node.decorator_list)


def test_what_is_measured_is_kept_by_the_run() -> None:
    """A dictionary in a fixture would not be cleared when an incident is replayed again."""
    assert [
        f"{module}.{node.name}: use _run.measured.once"
        for module, path in FILES.items()
        if folder_of(module) in KNOW_PYTEST
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        and _is_shared_fixture(node)
        and isinstance(last := node.body[-1], ast.Return)
        and last.value
        and ast.unparse(last.value) in {"{}", "[]", "dict()", "list()"}
    ] == []


def test_private_names_stay_in_their_module() -> None:
    assert [
        f"{module} imports {imported.name}"
        for module, path in FILES.items()
        for imported in imports(path)
        if imported_module(imported.name)
        and (last := imported.name.rpartition(".")[2]).startswith("_")
        and not last.startswith("__")
    ] == []


def test_only_a_runs_modules_import_pytest() -> None:
    assert [
        f"{module} imports {imported.name}"
        for module, path in FILES.items()
        if folder_of(module) not in KNOW_PYTEST or module in WITHOUT_PYTEST
        for imported in imports(path)
        if imported.name.partition(".")[0] in {"pytest", "_pytest", "syrupy"}
    ] == []


def test_gevent_is_imported_in_programs_alone() -> None:
    assert [
        f"{module} imports {imported.name}"
        for module, path in FILES.items()
        if module not in PATCHED
        for imported in imports(path)
        if imported_module(imported.name) in PATCHED
        or (not imported.typed and imported.name.partition(".")[0] in {"gevent", "locust"})
    ] == []


@pytest.mark.parametrize("module", ["plugin", *(name.partition(".")[2] for name in sorted(LIGHT))])
def test_an_inert_plugin_imports_little(module: str) -> None:
    for imported in imports(FILES[module]):
        if imported.typed or not imported.top:
            continue
        inner = imported_module(imported.name)
        assert inner is None or f"{NAME}.{inner}" in LIGHT, (
            f"{module} imports {imported.name} at once"
        )
        assert imported.name.partition(".")[0] not in HEAVY, (
            f"{module} imports {imported.name} at once"
        )


ARCHITECTURE = (PACKAGE.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
LAYOUT = ARCHITECTURE.partition("```text\n")[2].partition("```")[0]


def test_architecture_names_files_that_exist() -> None:
    named = re.findall(r"`(\w+/[\w/]+\.(?:py|toml))`", ARCHITECTURE)
    places = (PACKAGE, PACKAGE.parent)
    absent = [name for name in named if not any((place / name).is_file() for place in places)]
    assert "session/resolve.py" in named
    assert absent == []


def test_architecture_lays_out_every_folder_and_file_at_the_top() -> None:
    laid_out = set(re.findall(r"(\w+)/|(\w+\.py)", LAYOUT))
    described = {folder or file for folder, file in laid_out}
    existing = {path.name for path in PACKAGE.iterdir() if path.suffix == ".py"} | {
        path.name
        for path in PACKAGE.iterdir()
        if path.is_dir() and path.name not in {"__pycache__", "golden"}
    }
    assert existing - described == set()
    assert {name for name in described if "." in name} <= existing
