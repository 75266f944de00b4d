"""docs/contributing.md is right: its example is read, and every section ends with a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_vllm_gates.diagnosis import explain, signature

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", TEXT, re.MULTILINE))
WORK = ("Add ", "Pin ", "List ", "Name ", "Teach ")


@pytest.mark.parametrize("name", [name for name in SECTIONS if name.startswith(WORK)])
def test_section_has_the_test_command_of_its_work(name: str) -> None:
    blocks = re.findall(r"^```console\n(.*?)^```$", SECTIONS[name], re.MULTILINE | re.DOTALL)
    assert any(".venv/bin/pytest tests/" in block for block in blocks), name


def test_example_of_a_signature_names_its_line(tmp_path: Path) -> None:
    """It is read like a project's own, in place of the shipped one, and diagnoses the line."""
    section = SECTIONS["Name a failure"]
    (entry,) = re.findall(r"^```toml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    (line,) = re.findall(r"^```text\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    file = tmp_path / "signatures" / "ours.toml"
    file.parent.mkdir()
    file.write_text(entry, encoding="utf-8")
    explanation = explain.explain([line.encode()], signature.load_all(tmp_path))
    assert explanation.answer is not None
    assert (explanation.answer.id, explanation.answer.cause) == (
        "PORT",
        "Port 8000 is held by another process.",
    )
    assert line in (ROOT / "tests/signatures/logs/PORT-1.log").read_text(encoding="utf-8")


def test_paths_of_test_commands_exist() -> None:
    paths = set(re.findall(r"(?<=[ (`])tests/[\w/.-]+", TEXT))
    assert len(paths) > 20
    for path in paths:
        assert (ROOT / path.rstrip(".")).exists(), path
