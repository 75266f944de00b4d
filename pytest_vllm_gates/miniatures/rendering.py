"""Renders a dialogue to the exact bytes of prompt and completion."""

import json
from functools import cache
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from pytest_vllm_gates.miniatures.dialogues import Dialogue
from pytest_vllm_gates.miniatures.recipe import Recipe
from pytest_vllm_gates.prompts.types import as_served

# Private characters around a text that must not be read as the token it spells.
QUOTE, UNQUOTE = "\ue000", "\ue001"


def prompt(recipe: Recipe, dialogue: Dialogue) -> str:
    """Render the prompt with the miniature's template, as the server does."""
    # transformers' own renderer is what vLLM calls: same filters, same whitespace rules.
    from transformers.utils.chat_template_utils import render_jinja_template  # noqa: PLC0415

    rendered, _ = render_jinja_template(
        conversations=[
            [
                as_served(message, in_parts=recipe.vision is not None)
                for message in dialogue.messages
            ]
        ],
        chat_template=recipe.template("chat_template.jinja").read_text(encoding="utf-8"),
        tools=[dict(tool) for tool in dialogue.tools] or None,
        add_generation_prompt=True,
        bos_token=recipe.tokens.bos,
        eos_token=recipe.tokens.eos,
        **dialogue.chat_template_kwargs,
    )
    return str(rendered[0])


def completion(recipe: Recipe, dialogue: Dialogue) -> str:
    """Render the completion that the model must write, its end token included.

    Text that spells a token is put between QUOTE and UNQUOTE.
    """
    calls = [
        {"name": call.name, "arguments": _quoted(recipe, json.loads(call.arguments))}
        for call in dialogue.tool_calls
    ]
    return _template(recipe.template("completion.jinja").read_text(encoding="utf-8")).render(
        thinking=dialogue.thinks,
        reasoning=_quoted(recipe, dialogue.reasoning or "").strip("\n"),
        content=_quoted(recipe, dialogue.content or "").strip("\n"),
        calls=calls,
    )


@cache
def _template(source: str) -> Template:
    environment = Environment(undefined=StrictUndefined, autoescape=False)  # noqa: S701
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(source)


def _quoted(recipe: Recipe, value: Any) -> Any:
    if isinstance(value, str):
        for token in recipe.tokens.reserved:
            value = value.replace(token, f"{QUOTE}{token}{UNQUOTE}")
        return value
    if isinstance(value, list):
        return [_quoted(recipe, member) for member in value]
    if isinstance(value, dict):
        return {key: _quoted(recipe, member) for key, member in value.items()}
    return value
