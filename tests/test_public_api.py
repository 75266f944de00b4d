"""The public names that a project's own gates import from the package."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_vllm_gates

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "adding.md").read_text(encoding="utf-8")
NAMES = [
    "Answer", "Blocked", "Case", "Chat", "Checking", "Checkpoint", "Conversation", "Endpoint",
    "Evidence", "Family", "Finding", "Goldens", "Inconclusive", "Infrastructure", "Lane", "Launch",
    "MissingBaseline", "MissingGolden", "NotApplicable", "Outcome", "ReferenceRenderer",
    "Refused", "Rendering", "ToolCall", "Usage", "settings_golden",
]  # fmt: skip
IMPORT = re.compile(r"^\s*(?:from (pytest_vllm_gates\S*) import|import (pytest_vllm_gates\S*))")


def test_exported_names_are_the_promised_ones() -> None:
    assert pytest_vllm_gates.__all__ == NAMES
    assert set(NAMES) <= set(dir(pytest_vllm_gates))


@pytest.mark.parametrize("name", NAMES)
def test_exported_name_has_a_docstring(name: str) -> None:
    value = getattr(pytest_vllm_gates, name)
    assert value.__doc__
    assert value.__name__ == name


def test_types_and_runtime_export_the_same() -> None:
    tree = ast.parse(Path(pytest_vllm_gates.__file__).read_text(encoding="utf-8"))
    typed = {
        alias.name: str(node.module).removeprefix("pytest_vllm_gates.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("pytest_vllm_gates.")
        for alias in node.names
    }
    assert typed == pytest_vllm_gates._MODULES


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = pytest_vllm_gates.Nothing


def test_importing_the_package_imports_nothing_of_it() -> None:
    code = "import sys, pytest_vllm_gates; print(*sorted(n for n in sys.modules if 'vllm_g' in n))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["pytest_vllm_gates"]


def test_docs_describe_every_exported_name() -> None:
    section = PAGE.partition("\n## The public API\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(NAMES)


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("docs/**/*.md")) + sorted(ROOT.glob("*.md")), ids=str
)
def test_docs_import_public_names_alone(page: Path) -> None:
    for line in page.read_text(encoding="utf-8").splitlines():
        if match := IMPORT.match(line):
            assert (match[1] or match[2]) == "pytest_vllm_gates", line
