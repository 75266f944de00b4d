"""Templates and conversations far longer than the miniatures' are rendered like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.client import http
from pytest_vllm_gates.goldens import disagreement, first_difference, prompt_golden
from pytest_vllm_gates.prompts.reference import ReferenceRenderer

if TYPE_CHECKING:
    from e2e.served import Served

TOKENS = 100_000
TEMPLATE_BYTES = 20_000
GOLDEN_CHARACTERS = 200_000
SENTENCE = "The quick brown fox jumps over the lazy dog, again and again. "
UNIT = "{%%- macro unused_%d(text) -%%}{{- text | trim | upper -}}{%%- endmacro -%%}\n"
SHORT = {"messages": [{"role": "user", "content": SENTENCE}]}


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return Checkpoint(name="miniature", source=str(miniatures.path("qwen3.5")))


@pytest.fixture(scope="module")
def reference(checkpoint: Checkpoint) -> ReferenceRenderer:
    return ReferenceRenderer(checkpoint, {})


@pytest.fixture(scope="module")
def long(reference: ReferenceRenderer) -> dict[str, Any]:
    """A conversation of 100,000 tokens."""
    sentence_tokens = len(reference.token_ids(2 * SENTENCE)) - len(reference.token_ids(SENTENCE))
    times = TOKENS // sentence_tokens + 1
    return {"messages": [{"role": "user", "content": SENTENCE * times}]}


def test_long_conversation_is_recorded_in_a_readable_file(
    reference: ReferenceRenderer, long: dict[str, Any]
) -> None:
    prompt = reference.render(long)
    tokens, put_together = len(prompt.token_ids), "".join(prompt.pieces) == prompt.text
    assert tokens > TOKENS
    assert put_together
    golden = prompt_golden("long", prompt)
    assert golden.startswith(f"golden 1: prompt, {tokens} tokens: long")
    assert len(golden) < GOLDEN_CHARACTERS


def test_one_changed_token_in_a_long_conversation_is_found(
    reference: ReferenceRenderer, long: dict[str, Any]
) -> None:
    prompt = reference.render(long)
    changed_ids = list(prompt.token_ids)
    changed_ids[TOKENS // 2] += 1
    difference = first_difference(prompt, changed_ids)
    assert difference is not None
    assert difference.startswith(f"from token {TOKENS // 2} on, after ")
    assert len(difference) < 1000
    changed = {"messages": [{"role": "user", "content": long["messages"][0]["content"] + "!"}]}
    is_different = prompt_golden("long", reference.render(changed)) != prompt_golden("long", prompt)
    assert is_different


def test_a_long_template_renders_as_the_short_one(
    reference: ReferenceRenderer, checkpoint: Checkpoint
) -> None:
    template = reference.locked_parts()["chat template"].decode()
    while len(template.encode()) < TEMPLATE_BYTES:
        template = UNIT % len(template) + template
    longer = ReferenceRenderer(checkpoint, {"chat_template": template})
    assert longer.render(SHORT) == reference.render(SHORT)


@pytest.mark.real
@pytest.mark.slow
def test_server_renders_a_long_conversation_equally(
    shared: Served, reference: ReferenceRenderer, long: dict[str, Any]
) -> None:
    served = http.tokenize(shared.endpoint, long)
    assert disagreement(reference.render(long), served) is None
