"""Every fault of a template turns the check of its prompts red, and names what is lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, get_args

import pytest

from prompts.miniature_renderers import MINIATURES, NOWHERE, Renderers
from pytest_vllm_gates.catalog import prompt_format
from pytest_vllm_gates.catalog.conversation import load_all, shapes
from pytest_vllm_gates.catalog.known_defects import sort_findings
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.goldens import Refused, Rendering
from pytest_vllm_gates.prompts import marked, sent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.outcomes import Case, Finding
    from pytest_vllm_gates.prompts.marked import MarkedPrompt

Rendered = Callable[[str], tuple["Family", tuple["MarkedPrompt", ...]]]


@pytest.fixture(scope="module")
def renderers() -> Iterator[Renderers]:
    with Renderers() as stack:
        yield stack


@pytest.fixture(scope="module")
def rendered(renderers: Renderers) -> Rendered:
    """Render every shape and conversation of a family, once."""
    done: dict[str, tuple[Family, tuple[MarkedPrompt, ...]]] = {}

    def render(name: str) -> tuple[Family, tuple[MarkedPrompt, ...]]:
        if name not in done:
            family, renderer = renderers.of(name)
            conversations = (*shapes(), *load_all(NOWHERE))
            done[name] = family, marked.render(conversations, family, renderer)
        return done[name]

    return render


def new(check: str, judged: tuple[list[Finding], list[Case]], family: Family) -> list[str]:
    """Return the findings that are not known defects of the family."""
    findings, cases = judged
    assert cases
    sorted_findings = sort_findings(check, findings, cases, family.known_defects, "0.32.0")
    assert sorted_findings.gone == (), "a listed defect is not there"
    return [f"{finding.case.name}: {finding.says}" for finding in sorted_findings.new]


@pytest.mark.parametrize("name", MINIATURES)
def test_templates_of_the_families_lose_nothing_else(rendered: Rendered, name: str) -> None:
    family, prompts = rendered(name)
    assert new("what_clients_send_is_rendered", marked.refused(prompts, (), family), family) == []
    judged = marked.incomplete(prompts, (), family)
    assert new("all_that_was_sent_is_in_the_prompt", judged, family) == []
    judged = marked.unsent(prompts, (), family)
    assert new("nothing_else_is_in_the_prompt", judged, family) == []
    names = {prompt.conversation.name for prompt in prompts}
    refused = {refusal.name for refusal in family.prompt.refuses}
    assert refused <= names, "a refusal of no conversation"
    assert refused == {
        prompt.conversation.name for prompt in prompts if isinstance(prompt.outcome, Refused)
    }


def found(prompts: Sequence[MarkedPrompt], name: str) -> tuple[MarkedPrompt, str]:
    """Return a conversation's prompt and its text."""
    (prompt,) = (prompt for prompt in prompts if prompt.conversation.name == name)
    assert isinstance(prompt.outcome, Rendering)
    return prompt, prompt.outcome.text


def words(prompt: MarkedPrompt, kind: str) -> list[str]:
    found = [piece.word for piece in prompt.pieces if piece.kind == kind]
    assert found, f"{prompt.conversation.name} has no {kind}"
    return found


def without(kind: str, *, last: bool = False) -> Callable[[str, MarkedPrompt], str]:
    """Take the texts of a kind out of a prompt, or the last of them."""

    def edit(text: str, prompt: MarkedPrompt) -> str:
        for word in words(prompt, kind)[-1:] if last else words(prompt, kind):
            text = text.replace(word, "")
        return text

    return edit


def without_tool(text: str, prompt: MarkedPrompt) -> str:
    tool = [piece for piece in prompt.pieces if piece.tool][-1].tool
    for piece in prompt.pieces:
        if piece.tool == tool:
            text = text.replace(piece.word, "")
    return text


def twice(kind: str) -> Callable[[str, MarkedPrompt], str]:
    def edit(text: str, prompt: MarkedPrompt) -> str:
        word = words(prompt, kind)[0]
        return text.replace(word, f"{word} {word}")

    return edit


def swapped(kind: str) -> Callable[[str, MarkedPrompt], str]:
    """Change the places of the first two texts of a kind."""

    def edit(text: str, prompt: MarkedPrompt) -> str:
        first, second = [piece.text for piece in prompt.pieces if piece.kind == kind][:2]
        assert first in text
        return text.replace(first, "\0").replace(second, first).replace("\0", second)

    return edit


def escaped(kind: str, before: str, after: str) -> Callable[[str, MarkedPrompt], str]:
    """Write a character of the texts of a kind otherwise."""

    def edit(text: str, prompt: MarkedPrompt) -> str:
        for piece in prompt.pieces:
            if piece.kind == kind and before in piece.text:
                said = piece.text.strip()
                text = text.replace(said, said.replace(before, after))
        return text

    return edit


# A fault, the conversation that shows it, its edit of a prompt, and the finding.
FAULTS: dict[str, tuple[str, Callable[[str, MarkedPrompt], str], str]] = {
    "second tool lost": (
        "declared-tools", without_tool, "^the tool 'cancel' is not in the prompt$"),
    "names of tools lost": (
        "declared-tools", without(sent.TOOL), "^the name of the tool book_seats is not in"),
    "tools without descriptions": (
        "declared-tools", without(sent.TOOL_DESCRIPTION),
        "^the description of the tool book_seats is not in the prompt$"),
    "parameters lost": (
        "declared-tools", without(sent.PARAMETER), "^the parameter 'city' of the tool book_seats"),
    "parameters without descriptions": (
        "declared-tools", without(sent.DESCRIPTION),
        "^the description of 'city' of the tool book_seats is not in the prompt$"),
    "last description lost": (
        "declared-tools", without(sent.DESCRIPTION, last=True),
        "^the description of 'booking' of the tool cancel is not in the prompt$"),
    "parameters without enum": (
        "declared-tools", without(sent.VALUE),
        "^the allowed value 'first' of 'class' of the tool book_seats is not in the prompt$"),
    "a description twice": (
        "declared-tools", twice(sent.TOOL_DESCRIPTION),
        "^the description of the tool book_seats is in the prompt 2 times$"),
    "descriptions escaped as HTML": (
        "declared-tools", escaped(sent.TOOL_DESCRIPTION, "Cancel", "&#67;ancel"),
        "^the description of the tool cancel is changed: "),
    "calls vanish from history": (
        "parallel-calls", lambda text, prompt: without(sent.CALL)(
            without(sent.ARGUMENT)(text, prompt), prompt),
        r"^the call of look_up of message 2 \(assistant\) is not in the prompt$"),
    "second call lost": (
        "parallel-calls", without(sent.ARGUMENT, last=True), "^the number 4 in the arguments"),
    "arguments lost": (
        "parallel-calls", without(sent.ARGUMENT), "^the value 'Rome' in the arguments of the call"),
    "names of arguments lost": (
        "parallel-calls", without(sent.ARGUMENT_NAME), "^the name 'country' in the arguments"),
    "results lost": (
        "parallel-calls", without(sent.RESULT), r"^the text of message 3 \(tool\) is not in"),
    "one result lost": (
        "parallel-calls", without(sent.RESULT, last=True), r"^the text of message 4 \(tool\) is"),
    "results in the wrong order": (
        "parallel-calls", swapped(sent.RESULT), "^message 4 comes before message 3 has ended$"),
    "a result twice": (
        "parallel-calls", twice(sent.RESULT), r"^the text of message 3 \(tool\) is in .* 2 times$"),
    "system lost": ("system", without(sent.SYSTEM), r"^the text of message 1 \(system\) is not in"),
    "system twice": ("system", twice(sent.SYSTEM), r"^the text of message 1 \(system\) is in .* 2"),
    "developer lost": (
        "developer", without(sent.SYSTEM), r"^the text of message 1 \(developer\) is not in"),
    "question lost": (
        "three-turns", without(sent.USER, last=True), r"^the text of message \d+ \(user\) is not"),
    "questions in the wrong order": (
        "three-turns", swapped(sent.USER), r"^message \d comes before message \d has ended$"),
    "answers lost": (
        "three-turns", without(sent.ANSWER), r"^the text of message \d \(assistant\) is not in"),
    "an answer in the user's turn": (
        "three-turns",
        lambda text, prompt: text.replace(words(prompt, sent.ANSWER)[0], "").replace(
            words(prompt, sent.USER)[1],
            f"{words(prompt, sent.USER)[1]} {words(prompt, sent.ANSWER)[0]}"),
        r"^the text of message \d \(assistant\) stands in a turn of user$"),
    "part of a text lost": (
        "content-parts", without(sent.USER, last=True), r"^a part of message 1 \(user\) is not in"),
    "text cut": (
        "awkward-text",
        escaped(sent.USER, "<b>", ""),
        r"^the text of message 1 \(user\) is changed: "),
    "text escaped as HTML": (
        "awkward-text",
        escaped(sent.USER, "<b>", "&lt;b&gt;"),
        r"^the text of message 1 \(user\) is changed: "),
}  # fmt: skip
WITHOUT_TOOLS = {"gemma/3"}


@pytest.mark.parametrize("name", ["qwen3.5", "glm", "deepseek", "gemma"])
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_named(rendered: Rendered, name: str, fault: str) -> None:
    family, prompts = rendered(name)
    shape, edit, says = FAULTS[fault]
    prompt, text = found(prompts, shape)
    edited = edit(text, prompt)
    assert edited != text
    served = marked.ServedPrompt(prompt, "/tokenize", text=edited)
    findings, _ = marked.incomplete((), [served], family)
    assert any(re.search(says.rstrip("$"), finding.says) for finding in findings), findings


@pytest.mark.parametrize("name", ["qwen3.5", "glm"])
def test_kept_reasoning_of_an_earlier_turn_is_named(rendered: Rendered, name: str) -> None:
    family, prompts = rendered(name)
    prompt, text = found(prompts, "three-turns")
    (word, *_) = words(prompt, sent.EARLIER_REASONING)
    answer = words(prompt, sent.ANSWER)[0]
    text = text.replace(answer, f"{word} {answer}")
    findings, _ = marked.incomplete((), [marked.ServedPrompt(prompt, "/x", text=text)], family)
    assert "is in the prompt, but the family file lists it as dropped" in findings[0].says


@pytest.mark.parametrize("name", ["qwen3.5", "glm"])
def test_lost_reasoning_of_this_turn_is_named(rendered: Rendered, name: str) -> None:
    family, prompts = rendered(name)
    prompt, text = found(prompts, "tool-loop")
    text = without(sent.REASONING)(text, prompt)
    findings, _ = marked.incomplete((), [marked.ServedPrompt(prompt, "/x", text=text)], family)
    assert "the reasoning of message 2 (assistant) is not in the prompt" in findings[0].says


@pytest.mark.parametrize("name", ["qwen3.5", "glm", "deepseek", "gemma"])
@pytest.mark.parametrize(
    ("added", "says"),
    [
        ("You are a helpful assistant.", "the prompt holds 'You are a helpful assistant.'"),
        ("Today is 2026-11-24.", "the prompt holds 'Today is 2026-11-24.', which nobody sent"),
    ],
)
def test_unsent_text_is_named(rendered: Rendered, name: str, added: str, says: str) -> None:
    family, prompts = rendered(name)
    prompt, text = found(prompts, "plain")
    (word,) = words(prompt, sent.USER)
    text = text.replace(word, f"{word}{family.prompt.end_of_turn or ''} {added}")
    findings, _ = marked.unsent((), [marked.ServedPrompt(prompt, "/x", text=text)], family)
    assert says in findings[0].says


def test_a_beginning_written_twice_is_named(rendered: Rendered) -> None:
    family, prompts = rendered("deepseek")
    prompt, text = found(prompts, "plain")
    begin = family.prompt.special_tokens[0]
    assert text.startswith(begin)
    served = marked.ServedPrompt(prompt, "/x", text=begin + text)
    findings, _ = marked.unsent((), [served], family)
    assert f"the prompt begins with {begin!r} twice" in findings[0].says


# Faults of the template itself, by family: the replaced text, its replacement, and the finding.
TOOLS = "the tools you declared are not in the prompt"
JSON = "not as the JSON that was sent"
EDITS: dict[tuple[str, str], tuple[str, str, str, str]] = {
    ("qwen3.5", "tools dropped"): (
        "{%- if tools and tools is iterable and tools is not mapping -%}", "{%- if false -%}",
        "declared-tools", TOOLS),
    ("glm", "tools dropped"): ("{%- if tools -%}", "{%- if false -%}", "declared-tools", TOOLS),
    ("deepseek", "tools dropped"): (
        "{%- if tools -%}", "{%- if false -%}", "declared-tools", TOOLS),
    ("qwen3.5", "second tool dropped"): (
        "{%- for tool in tools -%}", "{%- for tool in tools[:1] -%}",
        "declared-tools", "the tool 'cancel' is not in the prompt"),
    ("glm", "second tool dropped"): (
        "{%- for tool in tools -%}", "{%- for tool in tools[:1] -%}",
        "declared-tools", "the tool 'cancel' is not in the prompt"),
    ("qwen3.5", "tools as a Python dict"): (
        "(tool | tojson)", "(tool | string)", "declared-tools", JSON),
    ("glm", "tools as a Python dict"): (
        "tool | tojson ~", "tool | string ~", "declared-tools", JSON),
    ("qwen3.5", "tools as JSON in JSON"): (
        "(tool | tojson)", "(tool | tojson | tojson)", "declared-tools", "is changed:"),
    ("glm", "tools as JSON in JSON"): (
        "tool | tojson ~", "tool | tojson | tojson ~", "declared-tools", "is changed:"),
    ("qwen3.5", "arguments as a Python dict"): (
        "value | tojson if structured", "value | string if structured", "parallel-calls", JSON),
    ("glm", "arguments as a Python dict"): (
        "value if value is string else value | tojson", "value | string", "parallel-calls", JSON),
    ("deepseek", "arguments as a Python dict"): (
        "given if given is string else given | tojson", "given | string", "parallel-calls", JSON),
    ("qwen3.5", "calls vanish"): (
        "{%- if message.tool_calls and", "{%- if false and", "parallel-calls",
        "the call of look_up of message 2 (assistant) is not in the prompt"),
    ("glm", "calls vanish"): (
        "{%- for call in message.tool_calls or [] -%}", "{%- for call in [] -%}", "parallel-calls",
        "the call of look_up of message 2 (assistant) is not in the prompt"),
    ("glm", "late system dropped"): (
        "{%- if message.role == 'system' -%}", "{%- if message.role == 'system' and loop.first -%}",
        "late-system", "the text of message 4 (system) is not in the prompt"),
    ("deepseek", "late system dropped"): (
        "for message in messages if message.role == 'system'",
        "for message in messages[:1] if message.role == 'system'",
        "late-system", "the text of message 4 (system) is not in the prompt"),
    ("glm", "reasoning kept"): (
        "(keep or loop.index0 > asked.at)", "true", "three-turns",
        "the family file lists it as dropped"),
    ("qwen3.5", "reasoning kept"): (
        "{%- if loop.index0 > asked.at -%}", "{%- if true -%}", "three-turns",
        "the family file lists it as dropped"),
    ("qwen3.5", "reasoning lost"): (
        "{%- if message.reasoning_content is string -%}", "{%- if false -%}", "tool-loop",
        "the reasoning of message 2 (assistant) is not in the prompt"),
    ("glm", "reasoning lost"): (
        "{%- if message.reasoning_content is string -%}", "{%- if false -%}", "tool-loop",
        "the reasoning of message 2 (assistant) is not in the prompt"),
    ("glm", "a user's text trimmed of its first word"): (
        "{{- '<|user|>' ~ text -}}", "{{- '<|user|>' ~ text.split(' ', 1)[-1] -}}", "plain",
        "is changed:"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "fault"), EDITS, ids=str)
def test_edited_template_is_named(renderers: Renderers, name: str, fault: str) -> None:
    old, edited, shape, says = EDITS[name, fault]
    template = (miniatures.path(MINIATURES[name]) / "chat_template.jinja").read_text()
    assert old in template
    family, renderer = renderers.of(name, chat_template=template.replace(old, edited))
    wanted = [one for one in (*shapes(), *load_all(NOWHERE)) if one.name == shape]
    prompts = marked.render(wanted, family, renderer)
    findings, _ = marked.incomplete(prompts, (), family)
    assert any(says in finding.says for finding in findings), findings


REFUSING: dict[tuple[str, str], tuple[str, str, str]] = {
    ("deepseek", "call-and-result"): (
        "~ (given if given is string else given | tojson) ~", "+ given +",
        "it joins an object to a text, as it is"),
    ("glm", "parallel-calls"): (
        "(function.arguments or {}).items()", "function.parameters.items()",
        "it reads 'parameters' of a value without it"),
    ("qwen3.5", "named-user"): (
        "{{- turn('user', text) -}}",
        "{{- turn('user', text) if not message.name else raise_exception('no names') -}}",
        "no names"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "shape"), REFUSING, ids=str)
def test_refused_shape_names_the_client_and_the_cause(
    renderers: Renderers, name: str, shape: str
) -> None:
    old, edited, says = REFUSING[name, shape]
    template = (miniatures.path(MINIATURES[name]) / "chat_template.jinja").read_text()
    assert old in template
    family, renderer = renderers.of(name, chat_template=template.replace(old, edited))
    (wanted,) = (one for one in shapes() if one.name == shape)
    prompts = marked.render([wanted], family, renderer)
    findings, cases = marked.refused(prompts, (), family)
    assert [case.name for case in cases] == [f"{shape}: {wanted.title}"]
    (finding,) = findings
    assert f"the template refuses these messages from {wanted.clients} (" in finding.says
    assert says in finding.says


def test_a_server_that_refuses_a_renderable_request_is_named(rendered: Rendered) -> None:
    family, prompts = rendered("glm")
    prompt, _ = found(prompts, "two-users")
    served = marked.ServedPrompt(prompt, "/tokenize", refused="answered 500, and 400 is expected")
    findings, _ = marked.refused([prompt], [served], family)
    assert findings[0].says.startswith(
        "the server refuses these messages (/tokenize) from Codex, AutoGen ("
    )
    assert "answered 500" in findings[0].says


def test_no_reasoning_is_due_in_a_family_that_does_not_think(rendered: Rendered) -> None:
    family, prompts = rendered("qwen3.5")
    prompt, text = found(prompts, "tool-loop")
    served = marked.ServedPrompt(prompt, "/x", text=without(sent.REASONING)(text, prompt))
    quiet = family.model_copy(update={"thinking": None})
    assert marked.incomplete((), [served], family)[0]
    assert not marked.incomplete((), [served], quiet)[0]


def test_a_family_file_may_drop_every_kind_and_no_other() -> None:
    kinds = {value for name, value in vars(sent).items() if name.isupper() and type(value) is str}
    assert kinds - {sent.LETTERS} == set(get_args(prompt_format.Kind))
