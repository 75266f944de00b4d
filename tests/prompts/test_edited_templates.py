"""A template that loses a client's text is reported, in every family besides the first four."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.catalog.conversation import shapes
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.prompts import marked
from pytest_vllm_gates.prompts.reference import ReferenceRenderer

NOWHERE = Path("/nonexistent")
TOOLS = "the tools you declared are not in the prompt"
LOST = "is not in the prompt"
# A family and the lost text, its miniature, the replaced text, its replacement, and the finding.
EDITS = {
    "llama tools": ("llama-3", "{%- if loop.first and declared -%}", "{%- if false -%}", TOOLS),
    "llama results": (
        "llama-3", "(message.content | tojson) ~ '<|eot", "'' ~ '<|eot", f"(tool) {LOST}"),
    "llama/4 tools": ("llama-4", "{%- if tools -%}", "{%- if false -%}", TOOLS),
    "llama/4 calls": (
        "llama-4", "{%- for call in message.tool_calls -%}", "{%- for call in [] -%}",
        f"of message 2 (assistant) {LOST}"),
    "mistral tools": ("mistral", "yet=not tools", "yet=true", TOOLS),
    "mistral calls": (
        "mistral", "in turn.tool_calls or [] -%}", "in [] -%}", f"of message 2 (assistant) {LOST}"),
    "phi tools": ("phi-4", "(tools | tojson)", "''", TOOLS),
    "phi arguments": (
        "phi-4", "(call.function.arguments | tojson)", "(call.function.arguments | string)",
        "and not as the JSON that was sent"),
    "kimi tools": ("kimi-k2", "(tools | tojson)", "''", TOOLS),
    "kimi reasoning": (
        "kimi-k2", "if loop.index0 > answered.at", "if false",
        f"the reasoning of message 2 (assistant) {LOST}"),
    "minimax tools": ("minimax-m2", "(tool.function | tojson)", "''", TOOLS),
    "minimax results": (
        "minimax-m2", "'\\n<response>' ~ text ~", "'\\n<response>' ~", f"(tool) {LOST}"),
    "nemotron tools": ("nemotron-3", "{%- if tools -%}", "{%- if false -%}", TOOLS),
    "nemotron enum": (
        "nemotron-3", "{%- if field.enum is defined -%}", "{%- if false -%}",
        f"the allowed value 'first' of 'class' of the tool book_seats {LOST}"),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_a_text_that_an_edited_template_loses_is_named(edit: str, tmp_path: Path) -> None:
    miniature, old, new, says = EDITS[edit]
    folder = miniatures.path(miniature)
    text = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    assert old in text
    template = tmp_path / "edited.jinja"
    template.write_text(text.replace(old, new), encoding="utf-8")
    family = families.load(edit.partition(" ")[0], NOWHERE)
    serve = {"chat_template": str(template)}
    renderer = ReferenceRenderer(Checkpoint(miniature, str(folder)), serve)
    try:
        findings, _ = marked.incomplete(marked.render(shapes(), family, renderer), (), family)
    finally:
        renderer.close()
    assert [finding.says for finding in findings if says in finding.says]
