"""Requests all classes and scores that the gate judges from one server, once for all checks."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pytest_vllm_gates.client import http
from pytest_vllm_gates.pooling import ask, ask_classes
from pytest_vllm_gates.pooling.classes import RANKED, TOKENS, ClassesWalk, Classified
from pytest_vllm_gates.pooling.types import AGAIN, ALONE, BATCH, COMPANY, LONG, REFUSED
from pytest_vllm_gates.pooling.walk import AT_ONCE, CUT, LONG_WORD, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_vllm_gates.catalog.pooling import Pooling
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.pooling.plan import PoolingPlan

RANKED_QUESTIONS = 2
BEST = 3
"""How many documents of `/rerank` are requested, in addition to all of them."""


class ClassWalk:
    """Sends one server a family's texts to classify, or its pairs to score."""

    def __init__(
        self, endpoint: Endpoint, facts: Pooling, plan: PoolingPlan, planned_context: int
    ) -> None:
        """`planned_context` is the server's context if it does not report one."""
        self._endpoint = endpoint
        self._scores = facts.task == "score"
        self._pairs = plan.pairs
        inputs, own = plan.scored() if self._scores else (plan.classified(), {})
        self._walk = ClassesWalk(inputs, own)
        self._planned_context = planned_context

    def run(self, step: Callable[[int, int], None]) -> ClassesWalk:
        """Send everything; `step` gets the number of parts done, and of all parts."""
        begun = time.monotonic()
        parts = [self._alone, self._again, self._batches, self._company, self._tokens]
        parts += [self._long, self._refusals, *([self._ranked] if self._scores else [])]
        for done, part in enumerate(parts, 1):
            part()
            step(done, len(parts))
        self._walk.requests += len(self._walk.asked)
        self._walk.seconds = time.monotonic() - begun
        return self._walk

    def _one(self, group: str, name: str) -> Classified:
        return self._ask(group, name, [self._walk.inputs[name]], alone=True)

    def _ask(
        self, group: str, name: str, inputs: Sequence[tuple[str, ...]], *, alone: bool = False
    ) -> Classified:
        texts = [list(column) for column in zip(*inputs, strict=True)]
        values = [column[0] if alone else column for column in texts]
        if self._scores:
            return ask_classes.score(self._endpoint, group, name, values[0], values[1])
        return ask_classes.classify(self._endpoint, group, name, values[0])

    def _alone(self) -> None:
        for name, texts in self._walk.inputs.items():
            ids: list[int] = []
            for text in texts:  # a pair's tokens are those of its texts, one after the other
                ids += http.token_ids(self._endpoint, text, add_special_tokens=True)
                self._walk.requests += 1
            self._walk.token_ids[name] = tuple(ids)
            self._walk.asked.append(self._one(ALONE, name))

    def _again(self) -> None:
        self._walk.asked += [self._one(AGAIN, name) for name in self._walk.inputs]

    def _batches(self) -> None:
        inputs = [*self._walk.inputs.values()]
        self._walk.asked.append(self._ask(BATCH, "in order", inputs))
        self._walk.asked.append(self._ask(BATCH, "reversed", inputs[::-1]))

    def _company(self) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            told = pool.map(lambda name: self._one(COMPANY, name), self._walk.inputs)
            self._walk.asked += told

    def _tokens(self) -> None:
        for name, ids in self._walk.token_ids.items():
            told = ask_classes.classify(self._endpoint, TOKENS, name, list(ids))
            self._walk.asked.append(told)

    def _long(self) -> None:
        """Cut one input by request; the same tokens, sent as token ids, have the expected row."""
        name, texts = next(iter(self._walk.inputs.items()))
        ids = list(self._walk.token_ids[name])
        cut = {"truncate_prompt_tokens": CUT}
        if self._scores:
            told = ask_classes.score(self._endpoint, LONG, "cut", texts[0], texts[1], **cut)
        else:
            told = ask_classes.classify(self._endpoint, LONG, "cut", texts[0], **cut)
        self._walk.asked.append(told)
        # The token that the tokenizer appends stays when it cuts off the end of a text.
        parts = {"its first tokens": ids[:CUT], "its last tokens": ids[-CUT:]}
        parts["its first tokens and its end"] = [*ids[: CUT - 1], ids[-1]]
        if self._scores:
            parts |= self._shorter_pairs(texts)
        for part, cut_ids in parts.items():
            told = ask_classes.classify(self._endpoint, LONG, part, cut_ids)
            self._walk.asked.append(told)

    def _shorter_pairs(self, pair: Sequence[str]) -> dict[str, list[int]]:
        """Return what may be left of a pair: tokenizers cut the longer text first.

        https://huggingface.co/docs/transformers/pad_truncation
        """
        first, second = (
            http.token_ids(self._endpoint, text, add_special_tokens=True) for text in pair
        )
        ends = 1 if first[-1] == second[-1] else 0
        left = CUT - 2 * ends
        return {
            f"{count} tokens of the question": [
                *first[:count], *first[len(first) - ends :],
                *second[: left - count], *second[len(second) - ends :],
            ]
            for count in range(left + 1)
        }  # fmt: skip

    def _refusals(self) -> None:
        name, texts = next(iter(self._walk.inputs.items()))
        context = http.context(self._endpoint, self._planned_context)
        too_long = LONG_WORD * (2 * context)
        classify, endpoint = ask_classes.classify, self._endpoint
        self._walk.asked += [
            classify(endpoint, REFUSED, "too long", too_long),
            classify(endpoint, REFUSED, "an empty list", []),
            classify(endpoint, REFUSED, "another model", texts[0], model=UNKNOWN),
        ]
        status, message = ask.chat(endpoint)
        chat = Classified("a chat", REFUSED, http.CHAT, ask.CHAT_BODY, status=status, error=message)
        self._walk.asked += [chat, self._one(REFUSED, name)]

    def _ranked(self) -> None:
        documents = [pair.document for pair in self._pairs]
        for number, pair in enumerate(self._pairs[:RANKED_QUESTIONS], 1):
            asked = pair.question
            name = f"question {number}"
            self._walk.asked += [
                ask_classes.score(self._endpoint, RANKED, name, asked, documents),
                ask_classes.rerank(self._endpoint, RANKED, name, asked, documents, len(documents)),
                ask_classes.rerank(self._endpoint, RANKED, name, asked, documents, BEST),
            ]
