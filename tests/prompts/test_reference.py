"""The reference renders a request as vLLM does, and reports unusable files."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.goldens import Refused
from pytest_vllm_gates.prompts.limits import RenderLimits
from pytest_vllm_gates.prompts.reference import ReferenceRenderer
from pytest_vllm_gates.prompts.types import Endless

if TYPE_CHECKING:
    from pathlib import Path

# Shows a template everything that vLLM passes to it.
SHOWING = """\
{%- for message in messages -%}
[{{ message.role }}:{{ message.content }}|{{ message.reasoning_content or "" }}
{%- for call in message.tool_calls or [] %} {{ call.function.name }}
{%- for key, value in call.function.arguments.items() %} {{ key }}={{ value }}{% endfor -%}
{%- endfor -%}]
{%- if message.role == "system" and not loop.first -%}
{{ raise_exception("system first") }}
{%- endif -%}
{%- endfor -%}
{%- if tools %}{{ tools | length }} tools{% endif -%}
{%- if add_generation_prompt %}go{% if enable_thinking is false %} at once{% endif %}{% endif -%}
"""
SHOWING_PARTS = """\
{%- for message in messages -%}
{%- if message.content is string %}{{ message.content }}{% else -%}
{%- for part in message.content %}{{ part.text }}{% endfor -%}
{%- endif %};{% endfor -%}
"""

Made = Callable[..., ReferenceRenderer]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint's folder: the miniature's tokenizer, and a template of a test's own."""
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(miniatures.path("qwen3.5") / name, tmp_path)
    return tmp_path


@pytest.fixture
def made(folder: Path) -> Made:
    def make(template: str | None = SHOWING, **serve: Any) -> ReferenceRenderer:
        if template is not None:
            (folder / "chat_template.jinja").write_text(template)
        return ReferenceRenderer(Checkpoint(name="weights", source=str(folder)), serve)

    return make


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def test_a_prompt_ends_in_the_assistants_opening(made: Made) -> None:
    prompt = made().render({"messages": [said("user", "Hi")]})
    assert prompt.text == "[user:Hi|]go"
    assert "".join(prompt.pieces) == prompt.text
    assert len(prompt.pieces) == len(prompt.token_ids) > 1


def test_joined_pieces_are_the_prompt_in_any_script(made: Made) -> None:
    prompt = made().render({"messages": [said("user", "naïve 日本 שלום 👩‍🚀 \u200b e\u0301")]})
    assert "".join(prompt.pieces) == prompt.text
    assert len(prompt.pieces) == len(prompt.token_ids)


def test_switches_and_tools_reach_the_template(made: Made) -> None:
    body = {
        "messages": [said("user", "Hi")],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "chat_template_kwargs": {"enable_thinking": False},
    }
    assert made().render(body).text == "[user:Hi|]1 toolsgo at once"


def test_the_servers_defaults_apply_unless_overridden(made: Made) -> None:
    rendering = made(default_chat_template_kwargs={"enable_thinking": False})
    messages = [said("user", "Hi")]
    assert rendering.render({"messages": messages}).text.endswith("go at once")
    request = {"messages": messages, "chat_template_kwargs": {"enable_thinking": True}}
    assert rendering.render(request).text.endswith("go")


@pytest.mark.parametrize("content", [None, ""])
def test_absent_content_is_empty(made: Made, content: str | None) -> None:
    assert made().render({"messages": [said("assistant", content)]}).text == "[assistant:|]go"
    assert made().render({"messages": [{"role": "assistant"}]}).text == "[assistant:|]go"


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_passed_under_both_names(made: Made, name: str) -> None:
    message = said("assistant", "4", **{name: "2+2"})
    assert made().render({"messages": [message]}).text == "[assistant:4|2+2]go"


@pytest.mark.parametrize("arguments", ['{"a": 1, "b": [2]}', {"a": 1, "b": [2]}])
def test_a_calls_arguments_reach_the_template_as_an_object(made: Made, arguments: Any) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    text = made().render({"messages": [said("assistant", None, tool_calls=[call])]}).text
    assert text == "[assistant:| f a=1 b=[2]]go"


@pytest.mark.parametrize("arguments", ["", None, "{}"])
def test_a_call_without_arguments_has_none(made: Made, arguments: str | None) -> None:
    call = {"function": {"name": "f", "arguments": arguments}}
    message = said("assistant", "", tool_calls=[call])
    assert made().render({"messages": [message]}).text == "[assistant:| f]go"
    assert call["function"]["arguments"] == arguments, "the request itself was changed"


PARTS = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]


def test_parts_are_joined_for_a_template_that_takes_none(made: Made) -> None:
    assert made().render({"messages": [said("user", PARTS)]}).text == "[user:one\ntwo|]go"


def test_parts_are_left_to_a_template_that_takes_them(made: Made) -> None:
    assert made(SHOWING_PARTS).render({"messages": [said("user", PARTS)]}).text == "onetwo;"


def test_the_servers_content_format_is_used(made: Made) -> None:
    rendering = made(SHOWING_PARTS, chat_template_content_format="string")
    assert rendering.render({"messages": [said("user", PARTS)]}).text == "one\ntwo;"


def test_any_error_of_a_template_is_a_refusal(made: Made) -> None:
    raising = "{% if messages | length > 1 %}{{ 1 // 0 }}{% endif %}x"
    refusal = made(raising).outcome({"messages": [said("user", "Hi"), said("user", "Hi")]})
    assert isinstance(refusal, Refused)
    assert "zero" in str(refusal)


def test_a_refusal_has_the_templates_words(made: Made) -> None:
    with pytest.raises(Refused, match="system first"):
        made().render({"messages": [said("user", "Hi"), said("system", "late")]})


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        (None, "has no chat template: every chat will be refused"),
        ("{% if %}", "the chat template has a syntax error in line 1"),
        ("{{ messages.no.such }}", "the chat template cannot render one plain question"),
        ("{{ raise_exception('never') }}", "cannot render one plain question: never"),
    ],
)
def test_an_unusable_template_is_a_user_error(
    made: Made, template: str | None, sentence: str
) -> None:
    with pytest.raises(UserError, match=r"^checkpoint weights") as caught:
        made(template)
    assert sentence in str(caught.value)


ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
ENDLESS_LATER = f"{{% if messages | length > 1 %}}{ENDLESS}{{% endif %}}{SHOWING}"


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def limit(**limits: Any) -> None:
        monkeypatch.setattr(RenderLimits, "from_environment", lambda: RenderLimits(**limits))

    return limit


def test_an_endless_conversation_is_tried_once(made: Made, limited: Callable[..., None]) -> None:
    limited(seconds=2.0, again_s=20.0)
    renders = made(ENDLESS_LATER)
    body = {"messages": [said("user", "Hi"), said("user", "again")]}
    with pytest.raises(Endless, match=r"still busy with this conversation after 2 s: does it loop"):
        renders.render(body)
    begun = time.monotonic()
    with pytest.raises(Endless):
        renders.outcome(body)
    assert time.monotonic() - begun < 1
    assert renders.render({"messages": [said("user", "Hi")]}).text == "[user:Hi|]go"


def test_the_next_endless_conversation_has_a_shorter_limit(
    made: Made, limited: Callable[..., None]
) -> None:
    limited(seconds=2.0, again_s=0.1)
    renders = made(ENDLESS_LATER)
    for number, after in ((2, "after 2 s"), (3, "after 0.1 s")):
        with pytest.raises(Endless, match=after):
            renders.render({"messages": [said("user", "Hi")] * number})


def test_an_endless_template_is_a_user_error(
    made: Made, folder: Path, limited: Callable[..., None]
) -> None:
    limited(seconds=1.0)
    with pytest.raises(UserError, match="does it loop") as caught:
        made(ENDLESS)
    assert str(folder / "chat_template.jinja") in str(caught.value)
    assert "VLLM_GATES_RENDER_SECONDS" in str(caught.value)


@pytest.mark.parametrize("fault", ["cut", "gone", "no JSON"])
def test_a_tokenizer_that_does_not_load_is_a_user_error(
    made: Made, folder: Path, fault: str
) -> None:
    tokenizer = folder / "tokenizer.json"
    text = tokenizer.read_text()
    tokenizer.write_text({"cut": text[: len(text) // 2], "no JSON": "hello"}.get(fault, ""))
    if fault == "gone":
        tokenizer.unlink()
    with pytest.raises(UserError) as caught:
        made()
    assert str(caught.value).startswith("checkpoint weights: its tokenizer does not load: ")
    assert f"tokenizer_config.json in {folder} whole" in str(caught.value)


ASKED = {"messages": [said("user", "Hi")]}


def test_the_servers_template_replaces_the_checkpoints(made: Made, tmp_path: Path) -> None:
    own = tmp_path / "own.jinja"
    own.write_text("own")
    assert made(chat_template=str(own)).render(ASKED).text == "own"
    assert made(None, chat_template="inline").render(ASKED).text == "inline"
    longer = "inline" + 5000 * "{# longer than a file's name may be #}"
    assert made(None, chat_template=longer).render(ASKED).text == "inline"


def test_everything_a_prompt_is_made_from_is_locked(made: Made) -> None:
    parts = made().locked_parts()
    assert set(parts) == {
        "chat template",
        "chat_template.jinja",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert parts["chat template"].decode() == SHOWING


def test_stop_ids_come_from_every_config_file(made: Made, folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    (folder / "config.json").write_text(json.dumps({"text_config": {"eos_token_id": 7}}))
    assert {5, 6, 7} <= made().stop_ids()
