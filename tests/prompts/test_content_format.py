"""Content is handed over in parts where vLLM would: a loop over it is found, however named."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.prompts.content_format import takes_parts

FOR = "{% for m in messages %}"
END = "{% endfor %}"
PARTS = "{{ p.text }}" + END
TEXT = "{% macro text(c) %}{% for p in c %}" + PARTS + "{% endmacro %}"


@pytest.mark.parametrize(
    "template",
    [
        FOR + "{% for p in m.content %}" + PARTS + END,
        FOR + "{% for p in m['content'] | list %}" + PARTS + END,
        "{% set rest = messages[1:] %}{% for m in rest %}{% for p in m.content %}" + PARTS + END,
        FOR + "{% set content = m.content %}{% for p in content %}" + PARTS + END,
        TEXT + FOR + "{{ text(m.content) }}" + END,
        TEXT + FOR + "{{ text(c=m['content']) }}" + END,
        FOR + "{% generation %}{% for p in m.content %}" + PARTS + "{% endgeneration %}" + END,
    ],
    ids=["attribute", "filtered", "slice", "variable", "macro", "keyword", "generation"],
)
def test_a_template_that_loops_over_content_takes_parts(template: str) -> None:
    assert takes_parts(template)


@pytest.mark.parametrize(
    "template",
    [
        FOR + "{{ m.content }}" + END,
        FOR + "{% for c in m.tool_calls %}{{ c.name }}" + END + END,
        "{% for t in tools %}{% for p in t.content %}" + PARTS + END,
        TEXT + FOR + "{{ text(m.role) }}" + END,
        "{% set ns = namespace() %}{% set ns.all = messages %}"
        + FOR + "{% for p in m.content %}" + PARTS + END,
        "{% if %}",
    ],
    ids=["text", "calls", "tools", "macro of another", "namespace", "no template"],
)  # fmt: skip
def test_any_other_template_takes_texts(template: str) -> None:
    assert not takes_parts(template)
