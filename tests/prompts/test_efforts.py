"""Every effort that clients send is taken with its effect, or refused with a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from prompts.miniature_renderers import MINIATURES, NOWHERE, Renderers
from pytest_vllm_gates.catalog.conversation import load_all
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.prompts import efforts, marked

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def renderers() -> Iterator[Renderers]:
    with Renderers() as stack:
        yield stack


@pytest.mark.parametrize("name", MINIATURES)
def test_efforts_of_the_families_are_taken_or_refused(renderers: Renderers, name: str) -> None:
    family, renderer = renderers.of(name)
    trivial = next(one for one in load_all(NOWHERE) if one.name == "plain")
    prompts = efforts.render(trivial, family, renderer)
    states = efforts.plain_states(trivial, family, renderer)
    findings, cases = efforts.judge(prompts, (), states, family)
    assert findings == []
    assert [case.traits["shape"] for case in cases] == [f"effort-{one}" for one in efforts.EFFORTS]


EFFORT_FAULTS = {
    "crash": (
        "{%- if reasoning_effort is defined -%}{{ reasoning_effort + {} }}{%- endif -%}",
        "the template breaks: it joins", "glm"),
    "ignored": ("", "the efforts low, high give one and the same prompt", "glm"),
    "none thinks": (
        "{%- if reasoning_effort is defined -%}{%- set enable_thinking = true -%}{%- endif -%}",
        "the model still thinks", "qwen3.5"),
    "slipped in": (
        "{%- if reasoning_effort is defined -%}Effort: {{ reasoning_effort }}{%- endif -%}",
        "the prompt differs from the one without an effort", "glm"),
    "refused though listed": (
        "{%- if reasoning_effort == 'low' -%}{{ raise_exception('no such effort') }}{%- endif -%}",
        "the family file lists this effort, and the template refuses it: no such effort", "glm"),
    "question lost": (
        "{%- if reasoning_effort is defined -%}"
        """{%- set messages = [{'role': 'user', 'content': 'x'}] -%}{%- endif -%}""",
        "the text of message 1 (user) is not in the prompt", "glm"),
}  # fmt: skip


@pytest.mark.parametrize("fault", EFFORT_FAULTS)
def test_effort_that_breaks_a_prompt_is_named(renderers: Renderers, fault: str) -> None:
    head, says, name = EFFORT_FAULTS[fault]
    template = (miniatures.path(MINIATURES[name]) / "chat_template.jinja").read_text()
    family, renderer = renderers.of(name, chat_template=head + template)
    if fault in ("ignored", "refused though listed"):
        assert family.thinking
        listed = family.thinking.model_copy(update={"efforts": ("low", "high")})
        family = family.model_copy(update={"thinking": listed})
    trivial = next(one for one in load_all(NOWHERE) if one.name == "plain")
    prompts = efforts.render(trivial, family, renderer)
    states = efforts.plain_states(trivial, family, renderer)
    findings, _ = efforts.judge(prompts, (), states, family)
    assert any(says in finding.says for finding in findings), findings


def test_an_effort_that_breaks_the_server_is_named(renderers: Renderers) -> None:
    family, renderer = renderers.of("glm")
    trivial = next(one for one in load_all(NOWHERE) if one.name == "plain")
    prompts = efforts.render(trivial, family, renderer)
    states = efforts.plain_states(trivial, family, renderer)
    broken = marked.ServedPrompt(prompts[-1], "/x", refused=f"answered 500{marked.BROKEN}")
    refused = marked.ServedPrompt(prompts[-2], "/x", refused="no such effort")
    findings, _ = efforts.judge(prompts, [broken, refused], states, family)
    (finding,) = findings
    assert finding.case.traits == {"shape": "effort-max"}
    assert "the server answered 500, and 400 is expected" in finding.says


NUMBERS = (
    "{%- if reasoning_effort is number -%}"
    "{%- if reasoning_effort < 1 or reasoning_effort > 100 -%}"
    "{{ raise_exception('from 1 to 100') }}{%- endif -%}"
    "Effort: {{ reasoning_effort }}{%- endif -%}"
)
NUMBER_FAULTS = {
    "right": (NUMBERS, {}),
    "none is refused": (
        NUMBERS.replace("raise_exception('from 1 to 100')", "''"),
        {"effort-0": "it is not from 1 to 100", "effort-101": "it is not from 1 to 100"}),
    "the largest is refused": (
        NUMBERS.replace("> 100", "> 99"), {"effort-100": "it is from 1 to 100, and refused"}),
    "rounded": (
        NUMBERS.replace("Effort: {{ reasoning_effort }}", "Effort: {{ reasoning_effort // 60 }}"),
        {"effort-50": "the prompt is the one of effort 1: it has no effect"}),
    "question lost": (
        NUMBERS + "{%- if reasoning_effort == 100 -%}"
        "{%- set messages = [{'role': 'user', 'content': 'x'}] -%}{%- endif -%}",
        {"effort-100": "the text of message 1 (user) is not in the prompt"}),
}  # fmt: skip


@pytest.mark.parametrize("fault", NUMBER_FAULTS)
def test_efforts_that_are_numbers_have_their_effect(renderers: Renderers, fault: str) -> None:
    head, wanted = NUMBER_FAULTS[fault]
    template = (miniatures.path(MINIATURES["glm"]) / "chat_template.jinja").read_text()
    family, renderer = renderers.of("glm", chat_template=head + template)
    assert family.thinking
    thinking = family.thinking.model_copy(update={"effort_numbers": (1, 100)})
    family = family.model_copy(update={"thinking": thinking})
    trivial = next(one for one in load_all(NOWHERE) if one.name == "plain")
    prompts = efforts.render(trivial, family, renderer)
    states = efforts.plain_states(trivial, family, renderer)
    findings, cases = efforts.judge(prompts, (), states, family)
    assert {case.traits["shape"] for case in cases} >= {"effort-0", "effort-50", "effort-101"}
    assert {finding.case.traits["shape"] for finding in findings} == set(wanted)
    for finding in findings:
        assert finding.says.startswith(wanted[str(finding.case.traits["shape"])])
