"""The dialogues that a miniature is taught: requests and the expected answers."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from pytest_vllm_gates.checkpoints.miniatures import HERE
from pytest_vllm_gates.miniatures import recipe as recipes
from pytest_vllm_gates.miniatures.recipe import KnownDeviation, Recipe

TAUGHT = HERE / "taught"
Mode = Literal["on", "off", "unset", "none"]
Message = Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """A tool call; `arguments` is JSON text, as a client receives it."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Dialogue:
    """One request in OpenAI's format and the expected answer.

    Texts are compared stripped; an empty text and none are the same. `known` names a defect of
    released vLLM that affects this answer, so that it is expected.
    """

    id: str
    kind: str
    mode: Mode
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...]
    chat_template_kwargs: Mapping[str, Any]
    reasoning: str | None
    content: str | None
    tool_calls: tuple[Call, ...]
    finish_reason: Literal["stop", "tool_calls"]
    known: KnownDeviation | None = None

    @property
    def thinks(self) -> bool:
        """Whether the answer begins with reasoning."""
        return self.reasoning is not None

    def request(self) -> dict[str, Any]:
        """Return the body of a chat completion request, without model and sampling."""
        body: dict[str, Any] = {"messages": [dict(message) for message in self.messages]}
        if self.tools:
            body["tools"] = [dict(tool) for tool in self.tools]
        if self.chat_template_kwargs:
            body["chat_template_kwargs"] = dict(self.chat_template_kwargs)
        return body


@cache
def _read(file_name: str) -> Any:
    text = (TAUGHT / file_name).read_text(encoding="utf-8")
    return json.loads(text) if file_name.endswith(".json") else tomllib.loads(text)


def load_dialogues(name: str) -> tuple[Dialogue, ...]:
    """Return everything the miniature was taught, in every mode of thinking it has."""
    recipe = recipes.load(name)
    return tuple(
        _in_mode(taught, recipe, mode)
        for taught in _taught_tables(recipe)
        for mode in _modes(recipe, taught)
    )


def with_other_order(dialogue: Dialogue) -> Dialogue:
    """Return the dialogue with tools whose requirements are declared before their parameters."""
    tools = [json.loads(json.dumps(tool)) for tool in dialogue.tools]
    for tool in tools:
        schema = tool["function"]["parameters"]
        tool["function"]["parameters"] = {
            key: schema[key] for key in sorted(schema, key=("type", "required", "properties").index)
        }
    return replace(dialogue, id=f"{dialogue.id}-required-first", tools=tuple(tools))


def unknown_answer(name: str, *, thinking: bool) -> tuple[str | None, str]:
    """Return the reasoning and content of its answers to untaught requests."""
    answer = _read("unknown.toml")
    has_thinking = recipes.load(name).thinking is not None
    return (answer["reasoning"] if thinking and has_thinking else None), answer["content"]


def _taught_tables(recipe: Recipe) -> Iterator[Mapping[str, Any]]:
    for file in sorted(TAUGHT.glob("*.toml")):
        content = _read(file.name)
        texts = {"end_of_turn": recipe.end_of_turn, **content.get("text", {})}
        for dialogue in content.get("dialogue", ()):
            if dialogue["id"] not in recipe.skip and dialogue["kind"] not in recipe.skip:
                yield _filled(dialogue, texts)


def _filled(value: Any, texts: Mapping[str, str]) -> Any:
    """Return a copy with every `${name}` in its texts replaced."""
    if isinstance(value, str):
        for name, text in texts.items():
            value = value.replace(f"${{{name}}}", text)
        return value
    if isinstance(value, list):
        return [_filled(member, texts) for member in value]
    if isinstance(value, dict):
        return {key: _filled(member, texts) for key, member in value.items()}
    return value


def _modes(recipe: Recipe, taught: Mapping[str, Any]) -> tuple[Mode, ...]:
    if recipe.thinking is None:
        return ("none",)
    if recipe.thinking.switch is None:
        return ("on",)
    if taught.get("tools") and not recipe.thinking_with_tools:
        return ("off",) if recipe.thinking.default else ("off", "unset")
    return ("on", "off", "unset")


def _in_mode(taught: Mapping[str, Any], recipe: Recipe, mode: Mode) -> Dialogue:
    thinking = recipe.thinking
    thinks = thinking is not None and (thinking.default if mode == "unset" else mode == "on")
    kwargs = thinking.kwargs(thinks=thinks) if thinking and mode in ("on", "off") else {}
    calls = tuple(Call(**call) for call in taught.get("calls", ()))
    return Dialogue(
        id=taught["id"] if mode == "none" else f"{taught['id']}-{mode}",
        kind=taught["kind"],
        mode=mode,
        messages=tuple(_message(message, thinks=thinks) for message in taught["messages"]),
        tools=tuple(_read("tools.json")[tool] for tool in taught.get("tools", ())),
        chat_template_kwargs=kwargs,
        reasoning=taught["reasoning"] if thinks else None,
        content=taught.get("content"),
        tool_calls=calls,
        finish_reason="tool_calls" if calls else "stop",
        known=recipe.known.get(taught["id"]),
    )


def _message(message: dict[str, Any], *, thinks: bool) -> Message:
    """Return the message as a client sends it: without reasoning if none was received."""
    kept = {key: value for key, value in message.items() if thinks or key != "reasoning"}
    if kept["role"] == "assistant":
        kept.setdefault("content", None)
    return kept
