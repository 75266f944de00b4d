# ruff: noqa: RUF001 (the bars of DeepSeek's tokens are what they are)
"""The chat templates behave as the families' own do."""

from typing import Any

import jinja2
import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from pytest_vllm_gates.miniatures import recipe

USER = {"role": "user", "content": "Hi"}
CALL = {
    "role": "assistant",
    "content": "",
    "reasoning_content": "why",
    "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": "x", "n": 2}}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "5"}


def render(name: str, *messages: dict[str, Any], prompt: bool = True, **kwargs: Any) -> str:
    template = recipe.load(name).template("chat_template.jinja").read_text()
    rendered, _ = render_jinja_template(
        conversations=[list(messages)],
        chat_template=template,
        add_generation_prompt=prompt,
        bos_token=recipe.load(name).tokens.bos,
        **kwargs,
    )
    return str(rendered[0])


@pytest.mark.parametrize(
    ("name", "kwargs", "expected"),
    [
        ("qwen3.5", {}, "<|im_start|>assistant\n<think>\n"),
        ("qwen3.5", {"enable_thinking": True}, "<|im_start|>assistant\n<think>\n"),
        (
            "qwen3.5",
            {"enable_thinking": False},
            "<|im_start|>assistant\n<think>\n\n</think>\n\n",
        ),
        ("glm-4.7", {}, "<|user|>Hi<|assistant|><think>"),
        ("glm-4.7", {"enable_thinking": False}, "<|user|>Hi<|assistant|></think>"),
        ("deepseek-v3.1", {}, "<｜User｜>Hi<｜Assistant｜></think>"),
        ("deepseek-v3.1", {"thinking": True}, "<｜User｜>Hi<｜Assistant｜><think>"),
        ("deepseek-v3.1", {"enable_thinking": True}, "<｜User｜>Hi<｜Assistant｜></think>"),
        ("gemma-3", {}, "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"),
        ("gemma-4", {}, "<bos><|turn>user\nHi<turn|>\n<|turn>model\n"),
        (
            "gemma-4",
            {"enable_thinking": True},
            "<bos><|turn>system\n<|think|>\n<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\n",
        ),
    ],
)
def test_generation_prompt(name: str, kwargs: dict[str, Any], expected: str) -> None:
    assert render(name, USER, **kwargs).endswith(expected)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "qwen3.5",
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\nwhy\n</think>\n\n"
            "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n<parameter=n>\n2\n"
            "</parameter>\n</function>\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n"
            "5\n</tool_response>\n<tool_response>\n5\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n<think>\n",
        ),
        (
            "glm-4.7",
            "[gMASK]<sop><|user|>Hi<|assistant|><think>why</think><tool_call>f<arg_key>a</arg_key>"
            "<arg_value>x</arg_value><arg_key>n</arg_key><arg_value>2</arg_value></tool_call>"
            "<|observation|><tool_response>5</tool_response><tool_response>5</tool_response>"
            "<|assistant|><think>",
        ),
        (
            "deepseek-v3.1",
            "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜></think><｜tool▁calls▁begin｜>"
            '<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": "x", "n": 2}<｜tool▁call▁end｜>'
            "<｜tool▁calls▁end｜><｜end▁of▁sentence｜><｜tool▁output▁begin｜>5<｜tool▁output▁end｜>"
            "<｜tool▁output▁begin｜>5<｜tool▁output▁end｜>",
        ),
        (
            "gemma-3",
            '<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n[f(a="x", n=2)]'
            "<end_of_turn>\n<start_of_turn>user\n<tool_response>\n5</tool_response><end_of_turn>\n"
            "<start_of_turn>user\n<tool_response>\n5</tool_response><end_of_turn>\n"
            "<start_of_turn>model\n",
        ),
        (
            "gemma-4",
            "<bos><|turn>user\nHi<turn|>\n<|turn>model\n<|channel>thought\nwhy\n<channel|>"
            '<|tool_call>call:f{a:<|"|>x<|"|>,n:2}<tool_call|>'
            '<|tool_response>response:f{value:<|"|>5<|"|>}<tool_response|>'
            '<|tool_response>response:f{value:<|"|>5<|"|>}<tool_response|>',
        ),
    ],
)
def test_tool_history(name: str, expected: str) -> None:
    assert render(name, USER, CALL, RESULT, RESULT) == expected


@pytest.mark.parametrize("name", ["qwen3.5", "glm-4.7", "deepseek-v3.1", "gemma-3", "gemma-4"])
def test_reasoning_of_earlier_turns_is_dropped(name: str) -> None:
    answer = {"role": "assistant", "content": "Yes", "reasoning": "hm", "reasoning_content": "hm"}
    assert "hm" not in render(name, USER, answer, USER)


def test_glm_keeps_reasoning_on_request() -> None:
    answer = {"role": "assistant", "content": "Yes", "reasoning_content": "hm"}
    assert "<think>hm</think>Yes" in render("glm-4.7", USER, answer, USER, clear_thinking=False)


@pytest.mark.parametrize(
    ("name", "messages", "message"),
    [
        (
            "qwen3.5",
            [USER, {"role": "system", "content": "Late"}, USER],
            "System message must be at the beginning.",
        ),
        ("qwen3.5", [{"role": "system", "content": "Alone"}], "No user query found in messages."),
        ("qwen3.5", [{"role": "robot", "content": "x"}, USER], "Unexpected message role."),
        ("gemma-3", [USER, USER], "Conversation roles must alternate"),
    ],
)
def test_raises_as_published(name: str, messages: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(jinja2.exceptions.TemplateError, match=message):
        render(name, *messages)


def test_gemma_3_has_the_place_of_an_image_where_it_is() -> None:
    parts = [{"type": "image"}, {"type": "text", "text": " What is this? "}, {"type": "image"}]
    rendered = render("gemma-3", {"role": "user", "content": parts})
    assert "<start_of_turn>user\n<start_of_image>What is this?<start_of_image><end" in rendered


def test_gemma_3_puts_the_system_text_into_the_first_user_turn() -> None:
    rendered = render("gemma-3", {"role": "system", "content": "Be brief."}, USER)
    assert rendered.startswith("<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n")
