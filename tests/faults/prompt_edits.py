"""Edits of a template, a tokenizer and a generation config, and the gate's message for each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TEMPLATE = "chat_template.jinja"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
GENERATION = "generation_config.json"
THINKING_OFF = "enable_thinking is defined and enable_thinking is false"
HEAD = "{%- if not messages -%}"


@dataclass(frozen=True)
class Edit:
    """A change of a checkpoint's files, and the gate's message for it."""

    name: str
    says: str
    change: Callable[[Path], None]


EDITS: list[Edit] = []


def edit(says: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Make an edit of a function that changes a folder."""

    def declare(change: Callable[[Path], None]) -> Callable[[Path], None]:
        EDITS.append(Edit(change.__name__, says, change))
        return change

    return declare


def replace(file: Path, old: str, new: str) -> None:
    """Put `new` in place of `old`, which has to be there."""
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def amend(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file in place."""
    document = json.loads(file.read_text(encoding="utf-8"))
    change(document)
    file.write_text(json.dumps(document), encoding="utf-8")


def added(tokenizer: dict[str, Any], content: str) -> dict[str, Any]:
    """Return the added token of that text."""
    added_token: dict[str, Any] = next(
        token for token in tokenizer["added_tokens"] if token["content"] == content
    )
    return added_token


@edit(says="every conversation still renders as recorded")
def a_comment_in_the_template(folder: Path) -> None:
    """Prompts are the same and the file is not: the next change may affect prompts."""
    file = folder / TEMPLATE
    file.write_text("{#- Better now. -#}\n" + file.read_text(encoding="utf-8"), encoding="utf-8")


@edit(says="prompt-plain is not what was recorded")
def one_newline_more(folder: Path) -> None:
    """The unannounced edit on the Hub (DeepSeek-R1#350)."""
    replace(folder / TEMPLATE, "assistant\\n<think>\\n", "assistant\\n<think>\\n\\n")


@edit(says="thinking is on and '<think>' is not opened")
def the_tag_is_left_to_the_model(folder: Path) -> None:
    """The template no longer opens the thinking."""
    replace(folder / TEMPLATE, "assistant\\n<think>\\n'", "assistant\\n'")


@edit(says="prompt-plain is not what was recorded")
def thinking_off_by_default(folder: Path) -> None:
    """The default flips with the size of the checkpoint."""
    switch = "enable_thinking is not defined or enable_thinking is false"
    replace(folder / TEMPLATE, THINKING_OFF, switch)


@edit(says="prompt-thinking-off is not what was recorded")
def a_switch_that_is_not_read(folder: Path) -> None:
    """The template no longer looks at the switch (vllm#54744)."""
    replace(folder / TEMPLATE, THINKING_OFF, "false")


@edit(says="prompt-thinking-off is not what was recorded")
def a_switch_of_another_name(folder: Path) -> None:
    """Another family's switch."""
    replace(folder / TEMPLATE, THINKING_OFF, THINKING_OFF.replace("enable_thinking", "thinking"))


@edit(says="times the marker '<|im_start|>user\\n'")
def a_dropped_role_marker(folder: Path) -> None:
    """User turns begin with nothing."""
    replace(folder / TEMPLATE, "{{- turn('user', text) -}}", "{{- text ~ '<|im_end|>\\n' -}}")


@edit(says="prompt-multi-turn is not what was recorded")
def a_role_of_another_family(folder: Path) -> None:
    """`model` where this family has `assistant`."""
    replace(folder / TEMPLATE, "turn('assistant', body.text)", "turn('model', body.text)")


@edit(says="prompt-tool-one is not what was recorded")
def another_tool_header(folder: Path) -> None:
    """The words that introduce the tools."""
    replace(folder / TEMPLATE, "You have access to the following", "You can call these")


@edit(says="prompt-tool-one is not what was recorded")
def tools_with_sorted_keys(folder: Path) -> None:
    """The tools' JSON in another order."""
    replace(folder / TEMPLATE, "(tool | tojson)", "(tool.items() | sort | list | string)")


@edit(says="prompt-tool-result is not what was recorded")
def tool_results_under_another_tag(folder: Path) -> None:
    """A tool's answer, in a tag the model never saw."""
    replace(folder / TEMPLATE, "<tool_response>", "<tool_result>")


@edit(says="prompt-multi-turn is not what was recorded")
def old_reasoning_is_kept(folder: Path) -> None:
    """Reasoning of earlier turns stays in the prompt."""
    replace(folder / TEMPLATE, "{%- if loop.index0 > asked.at -%}", "{%- if thought -%}")


@edit(says="prompt-spaces is not what was recorded")
def texts_are_no_longer_trimmed(folder: Path) -> None:
    """Blanks around a message's text go to the model."""
    replace(
        folder / TEMPLATE,
        "{%- for message in messages -%}\n  {%- set text = text_of(message.content) | trim -%}",
        "{%- for message in messages -%}\n  {%- set text = text_of(message.content) -%}",
    )


@edit(says="prompt-plain is not what was recorded")
def a_system_prompt_nobody_asked_for(folder: Path) -> None:
    """A default persona."""
    head = "{#- Reasoning is shown only"
    persona = (
        "{%- if messages[0].role != 'system' -%}{{- turn('system', 'Be Qwen.') -}}{%- endif -%}"
    )
    replace(folder / TEMPLATE, head, persona + head)


@edit(says="prompt-plain is not what was recorded")
def a_token_at_the_start(folder: Path) -> None:
    """A beginning-of-sequence token the family does not have."""
    file = folder / TEMPLATE
    file.write_text("{{- '<|endoftext|>' -}}" + file.read_text(encoding="utf-8"), encoding="utf-8")


@edit(says="prompt-system-late is not what was recorded")
def late_system_messages_are_let_in(folder: Path) -> None:
    """A shape the family refuses is no longer refused."""
    refusal = "{{- raise_exception('System message must be at the beginning.') -}}"
    replace(folder / TEMPLATE, refusal, "{{- turn('system', text) -}}")


@edit(says="prompt-plain is not what was recorded")
def a_marker_that_is_no_token(folder: Path) -> None:
    """`<think>` falls apart into characters."""
    amend(
        folder / TOKENIZER,
        lambda tokenizer: tokenizer["added_tokens"].remove(added(tokenizer, "<think>")),
    )


@edit(says="special tokens that are not one token")
def a_split_special_token(folder: Path) -> None:
    """The end of a turn is ordinary text."""
    amend(
        folder / TOKENIZER,
        lambda tokenizer: tokenizer["added_tokens"].remove(added(tokenizer, "<|im_start|>")),
    )
    amend(
        folder / TOKENIZER_CONFIG,
        lambda config: config["additional_special_tokens"].remove("<|im_start|>"),
    )


@edit(says="tokenizer_config.json")
def another_special_token_map(folder: Path) -> None:
    """The end of text is used as the end of a turn."""
    amend(folder / TOKENIZER_CONFIG, lambda config: config.update(model_max_length=1024))


@edit(says="generation_config.json")
def other_stop_tokens(folder: Path) -> None:
    """`generation_config.json` is read only by the server."""
    amend(folder / GENERATION, lambda config: config.update(eos_token_id=[0]))


@edit(says="which the family file does not list")
def an_extra_stop_token(folder: Path) -> None:
    """An ordinary token ends answers."""
    amend(folder / GENERATION, lambda config: config["eos_token_id"].append(7))


@edit(says="generation_config.json")
def a_sampling_default(folder: Path) -> None:
    """A temperature for every request without one."""
    amend(folder / GENERATION, lambda config: config.update(temperature=0.1))


@edit(says="and takes the same turns with plain texts: a user's text can cause an error")
def a_text_that_is_refused(folder: Path) -> None:
    """Text that looks like a template causes an error."""
    loop = "{%- for message in messages -%}\n"
    check = "{%- if '{%' in message.content | string -%}{{- raise_exception('Hm.') -}}{%- endif -%}"
    replace(folder / TEMPLATE, loop, loop + check)


@edit(says="the template refuses turns of user and assistant, which every family takes")
def several_turns_that_are_refused(folder: Path) -> None:
    """A template for a single question."""
    text = "{%- if messages | length > 2 -%}{{- raise_exception('One question.') -}}{%- endif -%}"
    replace(folder / TEMPLATE, HEAD, text + HEAD)


@edit(says="added turns change the earlier tokens: from token 0 on")
def turns_that_are_counted(folder: Path) -> None:
    """The number of turns comes before them, and no prefix is ever found again."""
    replace(folder / TEMPLATE, HEAD, "{{- messages | length -}}" + HEAD)


@edit(says="the chat template was still busy with this conversation after")
def a_conversation_that_never_ends(folder: Path) -> None:
    """The nested loops come with the sixth message."""
    loops = "".join(f"{{%- for i{n} in range(99999) -%}}" for n in range(4))
    ends = "{%- endfor -%}" * 4
    replace(
        folder / TEMPLATE,
        HEAD,
        f"{{%- if messages | length > 5 -%}}{loops}{ends}{{%- endif -%}}{HEAD}",
    )


@edit(says="the chat template has a syntax error in line")
def a_template_that_does_not_parse(folder: Path) -> None:
    """An editor's accident."""
    replace(folder / TEMPLATE, HEAD, "{%- if not messages %}{% endfor %}")


@edit(says="the chat template cannot render one plain question")
def a_template_that_always_raises(folder: Path) -> None:
    """It was written for other kwargs."""
    replace(folder / TEMPLATE, HEAD, "{{- raise_exception('strftime_now is required') -}}" + HEAD)


@edit(says="does it loop?")
def a_template_that_loops(folder: Path) -> None:
    """Four nested loops over a few items."""
    loops = "".join(f"{{%- for i{n} in range(99999) -%}}" for n in range(4))
    replace(folder / TEMPLATE, HEAD, loops + "{%- endfor -%}" * 4 + HEAD)


@edit(says="has no chat template")
def no_template_at_all(folder: Path) -> None:
    """A base model's folder."""
    (folder / TEMPLATE).unlink()


@edit(says="its tokenizer does not load")
def a_tokenizer_cut_short(folder: Path) -> None:
    """A download that broke off."""
    file = folder / TOKENIZER
    file.write_bytes(file.read_bytes()[:5000])


@edit(says="its tokenizer does not load")
def a_tokenizer_of_an_unknown_class(folder: Path) -> None:
    """Saved by a newer transformers."""
    (folder / TOKENIZER).unlink()
    amend(folder / TOKENIZER_CONFIG, lambda config: config.update(tokenizer_class="Qwen9Tokenizer"))
