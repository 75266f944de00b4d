"""Walks the matrix: sends every cell's request whole, streamed and in wide deltas.

Several cells run at a time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import openai

from pytest_vllm_gates.catalog import matrix
from pytest_vllm_gates.catalog.matrix import UNSET
from pytest_vllm_gates.client import http, ready
from pytest_vllm_gates.client.answer import Exchange
from pytest_vllm_gates.client.chat import Chat
from pytest_vllm_gates.client.recorder import HEADER
from pytest_vllm_gates.conversations.stop_strings import choose

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.matrix import Cell, ConversationRule, Matrix
    from pytest_vllm_gates.client.answer import Answer
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.client.recorder import Recorder
    from pytest_vllm_gates.outcomes import Case

AT_A_TIME = 8
MODES = 3
"""A cell is sent whole, streamed and in wide deltas, at once: the longest answer takes one turn."""
CELLS_AT_A_TIME = 5
"""With three requests each, fewer than the 16 that a miniature's server generates for at a time."""

WIDE_TOKENS = 20
"""Tokens that a wide delta is requested to contain (`stream_interval`)."""


class Walk:
    """One walk through the matrix with one family: greedy and without retries."""

    def __init__(
        self,
        endpoint: Endpoint,
        family: Family,
        cells: Matrix,
        conversations: Sequence[Conversation],
        max_tokens: int,
    ) -> None:
        """Divide the cells into those to send and those that the family cannot have."""
        self._endpoint = endpoint
        self._family = family
        self._matrix = cells
        self._conversations = {conversation.name: conversation for conversation in conversations}
        self._max_tokens = max_tokens
        recorder = http.transport(endpoint)
        self._chat = Chat(endpoint, family, recorder)
        self._cell_client = CellClient(endpoint, self._chat, recorder)
        self.not_applicable: dict[str, str] = {}
        """The reason why a cell was not sent, by its name."""

    @property
    def requests(self) -> int:
        """The number of requests sent."""
        return self._cell_client.requests

    def run(self, step: Callable[[int, int], None] = lambda *_: None) -> tuple[Exchange, ...]:
        """Send the matrix and every conversation that needs an answer.

        `step` is called in this thread with the number of finished and of all cells.

        Conversations come first, because the longest answer is one of theirs and the others run
        beside it. Cells with a stop come last: the answer without a stop provides it.
        """
        conversations = [
            conversation for conversation in self._conversations.values() if conversation.ask
        ]
        cells = [
            *(matrix.cell_of(conversation) for conversation in conversations),
            *self._matrix.cells(),
        ]
        cells = [cell for cell in dict.fromkeys(cells) if self._applies(cell)]
        with self._chat.client, ThreadPoolExecutor(CELLS_AT_A_TIME) as pool:
            unstopped = {
                cell: pool.submit(self._plain, cell) for cell in cells if cell.stop == UNSET
            }
            stopped = [
                pool.submit(self._stopped, cell, unstopped[cell.unstopped])
                for cell in cells
                if cell.stop != UNSET
            ]
            futures: list[Future[Any]] = [*unstopped.values(), *stopped]
            for done, _ in enumerate(as_completed(futures), 1):
                step(done, len(futures))
            answers = [future.result() for future in unstopped.values()]
            exchanges = [*answers, *(future.result() for future in stopped)]
        return tuple(exchange for exchange in exchanges if exchange)

    def _rule_of(self, cell: Cell) -> ConversationRule:
        if cell.turns in self._conversations:
            return matrix.asked_of(cell)
        return self._matrix.asks(cell)

    def _applies(self, cell: Cell) -> bool:
        rule = self._rule_of(cell)
        conversation = self._conversations[rule.conversation]
        reason = conversation.model_copy(update={"thinking": cell.thinking}).why_not(self._family)
        if reason is None and cell.stop == "in_reasoning" and not self._thinks(cell):
            reason = f"{self._family.name} does not think unless the request turns thinking on"
        if reason:
            self.not_applicable[cell.name] = reason
        return reason is None

    def _thinks(self, cell: Cell) -> bool:
        thinking = self._family.thinking
        default = thinking is not None and thinking.default
        return {"on": True, "off": False}.get(cell.thinking, default)

    def _plain(self, cell: Cell) -> Exchange:
        return self._cell_client.ask(self._exchange(cell, {}))

    def _stopped(self, cell: Cell, unstopped: Future[Exchange]) -> Exchange | None:
        """Send the request with a stop from the answer without one; None if that has none."""
        plain = unstopped.result()  # submitted earlier, so it is done or running
        if plain.whole is None:
            return None
        stop = choose(cell.stop, plain.whole)
        if stop is None:
            self.not_applicable[cell.name] = "the answer without a stop has no text to stop at"
            return None
        more: dict[str, Any] = (
            {"stop_token_ids": [stop]} if isinstance(stop, int) else {"stop": [stop]}
        )
        exchange = replace(self._exchange(cell, more), unstopped=plain.whole, stop=stop)
        return self._cell_client.ask(exchange)

    def _exchange(self, cell: Cell, more: Mapping[str, Any]) -> Exchange:
        rule = self._rule_of(cell)
        body = rule.body(cell, self._conversations[rule.conversation], self._family)
        request = {**body, **more, "max_tokens": self._max_tokens, "return_token_ids": True}
        return Exchange(cell, rule, request, self._thinks(cell))


class CellClient:
    """Sends one cell whole, streamed and in wide deltas."""

    def __init__(self, endpoint: Endpoint, chat: Chat, recorder: Recorder) -> None:
        """`recorder` transports the chat's requests."""
        self._endpoint = endpoint
        self._chat = chat
        self._recorder = recorder
        self.requests = 0

    def ask(
        self, exchange: Exchange, headers: Mapping[str, Mapping[str, str]] | None = None
    ) -> Exchange:
        """Return the exchange with all answers; `headers` are sent by mode.

        Raises openai's error if a status means that the server was not reached.
        """
        headers_by_mode = headers or {}
        wide = {**exchange.request, "stream_interval": WIDE_TOKENS}
        name = f"gates-{exchange.cell.name.replace(' ', '-').replace(',', '')}"
        whole_headers = {HEADER: f"{name}-whole", **headers_by_mode.get("whole", {})}
        streamed_headers = {HEADER: name, **headers_by_mode.get("streamed", {})}
        stream = self._chat.stream
        try:
            with ThreadPoolExecutor(MODES) as pool:
                whole_sent = pool.submit(self._chat.ask, exchange.request, whole_headers)
                streamed_sent = pool.submit(stream, exchange.request, streamed_headers)
                widened_sent = pool.submit(stream, wide, headers_by_mode.get("widened"))
            whole = whole_sent.result()
            streamed, widened = streamed_sent.result(), widened_sent.result()
            raw = self._raw(whole)
        except openai.APIStatusError as error:
            if error.status_code in ready.OF_THE_CLIENT:
                raise
            return replace(exchange, error=f"answered {error.status_code}: {error.message}")
        except (openai.OpenAIError, httpx.HTTPError, ValueError) as error:
            return replace(exchange, error=f"{type(error).__name__}: {error}")
        finally:
            self.requests += MODES
        return replace(
            exchange,
            whole=whole,
            streamed=streamed,
            widened=widened,
            body=self._recorder.take(whole_headers[HEADER]),
            stream=self._recorder.take(streamed_headers[HEADER]),
            raw=raw,
        )

    def _raw(self, answer: Answer) -> str | None:
        return http.detokenize(self._endpoint, answer.token_ids) if answer.token_ids else None


@dataclass(frozen=True)
class WalkResult:
    """The matrix as it was sent with one family."""

    exchanges: tuple[Exchange, ...]
    not_applicable: Mapping[str, str]
    requests: int
    seconds: float
    max_tokens: int

    @property
    def answered(self) -> tuple[Exchange, ...]:
        """The answered cells; another check judges the others."""
        return tuple(exchange for exchange in self.exchanges if not exchange.error)

    @property
    def cases(self) -> list[Case]:
        """The answered cells as cases."""
        return [exchange.case for exchange in self.answered]

    @property
    def plain_thought(self) -> Answer | None:
        """The answer to a plain question with thinking on."""
        return next(
            (
                exchange.whole
                for exchange in self.answered
                if exchange.thinks
                and exchange.cell.tools == "undeclared"
                and exchange.cell.format == "text"
            ),
            None,
        )
