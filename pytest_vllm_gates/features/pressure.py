"""Fills a small KV cache with running requests, so that vLLM preempts and restarts some.

A request whose next token finds no free block is preempted: its blocks go to others, and its prompt
is read again later. As many prompts as run at once are made so long that they fill the cache to
less than a block each, and every answer is longer than a block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.questions import question

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.questions import Questions
    from pytest_vllm_gates.server.startup_check import Startup

ROOM = 1.2
"""Requests of full context that the cache has room for; vLLM refuses to boot below one."""
COMPANY = 8
"""Concurrent requests, if the server runs that many."""
QUESTION_TOKENS = 96
"""Most tokens that a template and a question add to a prompt."""
LONGEST_STEPS = 128
"""How many steps the server may take to read all prompts. The first answer must not end before the
last prompt is read, so answers are longer by as many tokens."""


@dataclass(frozen=True)
class CachePressure:
    """A cache that is too small, and requests that fill it."""

    blocks: int
    """How many blocks it has."""
    block_tokens: int
    at_once: int
    """Concurrent requests."""

    @property
    def prompt_tokens(self) -> int:
        """The tokens of a prompt, which ends in the middle of a block."""
        whole = max(1, self.blocks // self.at_once)
        return whole * self.block_tokens - self.block_tokens // 2

    @property
    def answer_tokens(self) -> int:
        """The tokens of an answer: more than a block."""
        return 2 * self.block_tokens + LONGEST_STEPS

    def bodies(
        self, family: Family, questions: Questions, filler_tokens: int
    ) -> dict[str, dict[str, Any]]:
        """Return the requests by name; no two prompts begin alike.

        `filler_tokens` is how long the filler is for the checkpoint's tokenizer.
        """
        room = self.prompt_tokens - QUESTION_TOKENS
        filler = questions.filler * max(0, room // filler_tokens)
        asked = {}
        for number in range(1, self.at_once + 1):
            text = questions.questions[(number - 1) % len(questions.questions)]
            body = question(family, f"Note {number}. {filler}\n\n{text}", self.answer_tokens)
            asked[f"pressed {number}"] = {**body, "ignore_eos": True}
        return asked


def of(startup: Startup, serve: Mapping[str, Any]) -> CachePressure | None:
    """Return the pressure for a server like the one whose start this is; None if that is unknown.

    The log reports how many requests of full context fit into the cache, and the metrics report
    its number of blocks.
    """
    concurrency = startup.figures.get("kv_concurrency")
    blocks, size = (startup.cache.get(name, "") for name in ("num_gpu_blocks", "block_size"))
    if not concurrency or not blocks.isdigit() or not size.isdigit():
        return None
    streams = str(serve.get("max_num_seqs", ""))
    at_once = min(COMPANY, int(streams)) if streams.isdigit() else COMPANY
    return CachePressure(math.ceil(ROOM * int(blocks) / concurrency), int(size), at_once)
