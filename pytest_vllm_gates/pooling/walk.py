"""Requests all vectors that the gate judges from one server, once for all its checks."""

from __future__ import annotations

import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pytest_vllm_gates.client import http
from pytest_vllm_gates.pooling import ask
from pytest_vllm_gates.pooling.types import (
    AGAIN,
    ALONE,
    BATCH,
    COMPANY,
    FORM,
    LONG,
    NONCE,
    REFUSED,
    Embedded,
    PoolingWalk,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_vllm_gates.catalog.pooling import Pooling
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.pooling.plan import PoolingPlan

AT_ONCE = 16
CUT = 7
"""Tokens to which a long text is cut."""
LONG_WORD = "river "
UNKNOWN = "no-such-model"


class VectorWalk:
    """Requests a family's vectors from one server."""

    def __init__(
        self, endpoint: Endpoint, facts: Pooling, plan: PoolingPlan, planned_context: int
    ) -> None:
        """`planned_context` is the server's context if it does not report one."""
        self._endpoint = endpoint
        self._facts = facts
        self._plan = plan
        self._walk = PoolingWalk(plan.named(facts.question))
        self._planned_context = planned_context

    def run(self, step: Callable[[int, int], None]) -> PoolingWalk:
        """Send everything; `step` gets the number of parts done, and of all parts."""
        begun = time.monotonic()
        parts = (
            self._alone, self._again, self._batches, self._company,
            self._forms, self._long, self._refusals, self._scores,
        )  # fmt: skip
        for done, part in enumerate(parts, 1):
            part()
            step(done, len(parts))
        self._walk.seconds = time.monotonic() - begun
        return self._walk

    def _ask(self, group: str, name: str, value: object, **fields: object) -> Embedded:
        embedded = ask.embed(self._endpoint, group, name, value, **fields)  # type: ignore[arg-type]
        self._walk.requests += 1
        self._walk.embedded.append(embedded)
        return embedded

    def _tokens(self, text: str) -> list[int]:
        self._walk.requests += 1
        return http.token_ids(self._endpoint, text, add_special_tokens=True)

    def _alone(self) -> None:
        self._walk.context = http.context(self._endpoint, self._planned_context)
        if self._facts.appended:
            self._walk.requests += 1
            ids = http.token_ids(self._endpoint, self._facts.appended)
            self._walk.appended = tuple(ids)
        for name, text in self._walk.texts.items():
            self._ask(ALONE, name, text)
            self._walk.token_ids[name] = tuple(self._tokens(text))

    def _again(self) -> None:
        """Send once more, in another order: cached data must not change the answers."""
        for name, text in [*self._walk.texts.items()][::-1]:
            self._ask(AGAIN, name, text)

    def _batches(self) -> None:
        names = list(self._walk.texts)
        for order, chosen in (("in order", names), ("reversed", names[::-1])):
            self._ask(BATCH, order, [self._walk.texts[name] for name in chosen])

    def _company(self) -> None:
        """Send all texts at once, with some that were never sent before."""
        nonces = {
            f"nonce {number}": f"The number is {secrets.token_hex(8)}." for number in range(8)
        }
        together = {**self._walk.texts, **nonces}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            told = list(pool.map(self._one, together.items()))
        self._walk.requests += len(told)
        self._walk.embedded += told
        for name, text in nonces.items():
            self._ask(NONCE, name, text)

    def _one(self, named: tuple[str, str]) -> Embedded:
        return ask.embed(self._endpoint, COMPANY, *named)

    def _forms(self) -> None:
        name, text = next(iter(self._walk.texts.items()))
        self._ask(FORM, "base64", text, encoding_format="base64")
        self._ask(FORM, "float", text, encoding_format="float")
        self._ask(FORM, "token ids", list(self._walk.token_ids[name]))
        self._ask(FORM, "a list of one", [text])
        self._ask(FORM, "with user", text, user="somebody")

    def _long(self) -> None:
        """Cut long texts by request; the same tokens, sent as ids, have the expected vector."""
        text = self._walk.texts["document 1"]
        whole = self._tokens(text)
        self._ask(LONG, "cut", text, truncate_prompt_tokens=CUT)
        # The token that the tokenizer appends stays: the vector is taken from it.
        kept = len(self._walk.appended)
        first = whole[: CUT - kept] + whole[len(whole) - kept :]
        self._ask(LONG, "its first tokens", first)
        self._ask(LONG, "its last tokens", whole[-CUT:])
        too_long = LONG_WORD * (2 * self._walk.context)
        self._ask(LONG, "cut to the context", too_long, truncate_prompt_tokens=-1)

    def _refusals(self) -> None:
        text = next(iter(self._walk.texts.values()))
        self._ask(REFUSED, "too long", LONG_WORD * (2 * self._walk.context))
        self._ask(REFUSED, "an empty list", [])
        self._ask(REFUSED, "a number", 7)
        self._ask(REFUSED, "another model", text, model=UNKNOWN)
        self._ask(REFUSED, "more dimensions than it has", text, dimensions=10**6)
        status, message = ask.chat(self._endpoint)
        self._walk.requests += 1
        self._walk.embedded.append(
            Embedded("a chat", REFUSED, ask.CHAT_BODY, status=status, error=message)
        )
        self._ask(REFUSED, "afterwards", text)

    def _scores(self) -> None:
        documents = [pair.document for pair in self._plan.pairs]
        for pair in self._questions():
            self._walk.scored.append(ask.score(self._endpoint, pair, documents))
            self._walk.scored.append(ask.rerank(self._endpoint, pair, documents, len(documents)))
            self._walk.scored.append(ask.rerank(self._endpoint, pair, documents, 2))
            self._walk.requests += 3

    def _questions(self) -> Iterable[str]:
        """Return the questions of the first two pairs, as the family writes them."""
        return [self._walk.texts[f"question {number}"] for number in (1, 2)]
