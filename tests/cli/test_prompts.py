"""`vllm-gates prompts` describes a template's prompts, and the changes of another revision."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

TEMPLATE = "chat_template.jinja"
TOOLS = "{%- if tools and tools is iterable and tools is not mapping -%}"


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of a tokenizer and a template, and no weights."""
    monkeypatch.chdir(tmp_path)
    return folder(tmp_path, "older")


def folder(where: Path, name: str, *edits: tuple[str, str], of: str = "qwen3.5") -> Path:
    """Make a checkpoint without weights whose template is edited."""
    made = where / name
    shutil.copytree(
        miniatures.path(of), made, ignore=shutil.ignore_patterns("*.safetensors", "*.index.json")
    )
    template = (made / TEMPLATE).read_text()
    for old, new in edits:
        assert old in template
        template = template.replace(old, new)
    (made / TEMPLATE).write_text(template)
    return made


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    status = main(["prompts", *arguments])
    return status, capsys.readouterr().out.splitlines()


def test_same_files_change_nothing(older: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newer = shutil.copytree(older, older.with_name("newer"))
    status, lines = said(capsys, str(newer), "--against", str(older))
    assert status == 0
    assert lines == [f"{newer} against {older}: Qwen 3.5", "every prompt is the same"]


CHANGES = {
    "tools": ((TOOLS, "{%- if false -%}"), "the tools that are declared are no longer in the"),
    "thinking": (("assistant\\n<think>\\n'", "assistant\\n'"), "thinking on: the prompt ends in "),
    "default system": (
        ("{%- elif messages[0].role == 'system' -%}",
         "{%- elif messages[0].role != 'system' -%}{{- turn('system', 'You are Qwen.') -}}"
         "{%- else -%}"),
        "without a system message the prompt holds 'You are Qwen.', which nobody sent"),
    "reasoning": (
        ("{%- if loop.index0 > asked.at -%}", "{%- if true -%}"),
        "earlier reasoning: 4 of 4 are in the prompts, it was 0"),
    "refusal": (
        ("{{- turn('user', text) -}}",
         "{{- turn('user', text) if not message.name else raise_exception('no names') -}}"),
        "refuses named-user (a user message with a name, sent by AutoGen) now: no names"),
    "takes": (
        ("{{- raise_exception('System message must be at the beginning.') -}}",
         "{{- turn('system', text) -}}"),
        "takes two-systems (two system messages at the start, sent by opencode) now"),
    "wording": (("# Tools", "# Functions"), " prompts differ; the shortest of them, "),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_change_is_described_in_words(
    change: str, older: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit, says = CHANGES[change]
    newer = folder(older.parent, "newer", edit)
    status, lines = said(capsys, str(newer), "--against", str(older))
    assert status == 1
    assert any(says in line for line in lines), lines


def test_template_is_described(older: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, str(older))
    assert status == 0
    assert lines[0] == f"{older}: Qwen 3.5"
    assert "earlier reasoning: 0 of 4 are in the prompts" in lines
    assert any(line.startswith("refuses late-system (") for line in lines)
    assert not any(line.startswith("tool") for line in lines)


def test_changed_stop_token_is_reported(older: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newer = shutil.copytree(older, older.with_name("newer"))
    (newer / "generation_config.json").write_text('{"eos_token_id": [5]}')
    status, lines = said(capsys, str(newer), "--against", str(older))
    assert status == 1
    assert any(line.startswith("answers stop at the ids [") for line in lines), lines


def test_family_without_a_template_is_reported(
    older: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prompts", str(older), "--model", "deepseek/v3.2"]) == 2
    assert "pytest --model deepseek/v3.2 -m chat_template" in capsys.readouterr().err


def test_folder_without_a_tokenizer_is_an_error(
    older: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (older / "tokenizer.json").unlink()
    assert main(["prompts", str(older)]) == 2
    assert "tokenizer" in capsys.readouterr().err
