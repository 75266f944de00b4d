"""A template that loses what clients send is red, even while its prompts are recorded."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from e2e import gates
from sweeps import sweep

from faults.prompt_edits import TEMPLATE, replace
from pytest_vllm_gates.checkpoints import miniatures

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real

TOOLS = "the tools you declared are not in the prompt"
# A fault, its family and checkpoint, the replacement in the template, and the expected message.
FAULTS = {
    "tools-qwen3.5": (
        "qwen3.5", "qwen3.5", "{%- if tools and tools is iterable and tools is not mapping -%}",
        "{%- if false -%}", TOOLS),
    "tools-glm": ("glm", "glm-4.7", "{%- if tools -%}", "{%- if false -%}", TOOLS),
    "calls-glm": (
        "glm", "glm-4.7", "{%- for call in message.tool_calls or [] -%}",
        "{%- for call in [] -%}", "of message 2 (assistant) is not in the prompt"),
    "arguments-deepseek": (
        "deepseek", "deepseek-v3.1", "~ (given if given is string else given | tojson) ~",
        "+ given +", "it joins an object to a text"),
    "date-gemma": (
        "gemma", "gemma-4", "{%- set thinks =", "{{- 'Today is 2026-11-24.' -}}{%- set thinks =",
        "which nobody sent"),
}  # fmt: skip


@pytest.mark.parametrize("fault", sweep(FAULTS, str, lambda fault: fault == "tools-qwen3.5"))
def test_template_that_loses_a_text_is_not_recorded_as_right(fault: str, tmp_path: Path) -> None:
    family, miniature, old, edited, says = FAULTS[fault]
    folder = tmp_path / "weights" / "finetuned"
    shutil.copytree(
        miniatures.path(miniature), folder, ignore=shutil.ignore_patterns("*.safetensors")
    )
    replace(folder / TEMPLATE, old, edited)
    ran = gates.run(
        tmp_path, "--checkpoint", str(folder), "-m", "chat_template", "--update-golden",
        model=family,
    )  # fmt: skip
    assert ran.outcomes()["chat_template"] == "FAIL", ran.output
    assert says in ran.output
    assert ran.verdict["promotion"] == "REJECT"
