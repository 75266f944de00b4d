"""Sends every case of `dialects.toml` in every dialect of a server, several at a time."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client import form, http
from pytest_vllm_gates.client.served_names import served_names
from pytest_vllm_gates.dialects import cases as dialect_cases, completions, messages, responses
from pytest_vllm_gates.dialects.ask import DialectClient
from pytest_vllm_gates.dialects.notation import NoPlace
from pytest_vllm_gates.dialects.routes import PATHS
from pytest_vllm_gates.dialects.types import (
    CHAT,
    COMPLETIONS,
    RESPONSES,
    STREAM,
    WHOLE,
    Dialogues,
    HeldDialogue,
)
from pytest_vllm_gates.dialects.yardstick import (
    YARDSTICK,
    chat_answer,
    cut_to,
    keeps_choice,
    late_word,
    near_tie,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.answer import Answer
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.dialects.cases import DialectCase
    from pytest_vllm_gates.dialects.types import Reply

OPENAPI = "/openapi.json"
MISSING = (404, 405)
"""Statuses by which a server without `/openapi.json` reports a missing route."""
TOKENIZED = ("messages", "tools", "chat_template_kwargs")
AT_A_TIME = 16
"""Concurrent cases. `near_tie` marks the places that another batch may decide differently."""


class DialectWalk:
    """One family's walk; `run` returns the dialogues."""

    def __init__(
        self, endpoint: Endpoint, family: Family, conversations: Sequence[Conversation], limit: int
    ) -> None:
        """`limit` is the token limit of an answer."""
        self._endpoint = endpoint
        self._family = family
        self._conversations = conversations
        self._limit = limit
        self._client = DialectClient(endpoint)
        self._counted = 0
        self._lock = threading.Lock()  # around the count
        self._left_out: dict[str, str] = {}
        self._unlimited_lock = threading.Lock()
        self._unlimited_answers: dict[str, Answer | None] = {}

    def run(self, step: Callable[[int, int], object] | None = None) -> Dialogues:
        """Run every case; after each, `step` gets the number of finished and of all cases.

        It is called in this thread.
        """
        begun = time.monotonic()
        offered = self._offered()
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            held = [pool.submit(self._hold, case, offered) for case in dialect_cases.load()]
            for done, _ in enumerate(as_completed(held), 1):
                if step:
                    step(done, len(held))
            dialogues = [future.result() for future in held]
        return Dialogues(
            tuple(dialogue for dialogue in dialogues if dialogue),
            dict(sorted(self._left_out.items())),
            self._client.requests + self._counted,
            time.monotonic() - begun,
            served_names(self._endpoint),
        )

    def _offered(self) -> frozenset[str] | None:
        """Return the routes in the server's `/openapi.json`; None if it has no such file."""
        with http.client(self._endpoint) as client:
            reply = client.get(OPENAPI)
        if not reply.is_success:
            return None
        with form.reading(f"the answer of {OPENAPI}"):
            return frozenset(reply.json()["paths"])

    def _hold(self, case: DialectCase, offered: frozenset[str] | None) -> HeldDialogue | None:
        chat, why_not = dialect_cases.chat_request(
            case, self._conversations, self._family, self._limit
        )
        if why_not:
            self._left_out[case.name] = why_not
            return None
        limit = 0
        if case.stop or case.short_of:
            unlimited = self._unlimited(case, chat)
            if case.stop and not (word := late_word(unlimited)):
                self._left_out[case.name] = "the answer has no word to stop at"
                return None
            if case.stop:
                chat["stop"] = [word]
            limit = cut_to(unlimited, case)
            if case.short_of and not limit:
                self._left_out[case.name] = "the answer is too short to be cut"
                return None
            chat["max_tokens"] = limit or chat["max_tokens"]
        reply = self._client.ask(CHAT, WHOLE, case.name, {**chat, **YARDSTICK})
        if not reply.answered:
            self._left_out[case.name] = f"the chat is answered with {reply.status}: {reply.error}"
            return None
        with form.reading("the answer"):
            answer = chat_answer(reply.body)
            ids = reply.body.get("prompt_token_ids") or []
            prompt_ids = tuple(form.token_ids(ids, "prompt_token_ids"))
            tied = near_tie(reply.body)
        if not keeps_choice(case, answer):
            self._left_out[case.name] = "the chat calls no tool, although one was required"
            return None
        replies = [
            asked
            for mode, dialects in ((WHOLE, case.whole), (STREAM, case.stream))
            for dialect in dialects
            if (asked := self._ask(dialect, mode, case, chat, prompt_ids, offered))
        ]
        return HeldDialogue(
            name=case.name,
            chat_request=chat,
            chat=answer,
            prompt_ids=prompt_ids,
            near_tie=tied,
            limit=limit,
            replies=tuple(replies),
            **(self._count(chat, offered) if case.counted else {}),
        )

    def _unlimited(self, case: DialectCase, chat: Mapping[str, Any]) -> Answer | None:
        """Return the answer to a case's conversation without its stop and limit, requested once."""
        with self._unlimited_lock:
            if case.conversation not in self._unlimited_answers:
                reply = self._client.ask(CHAT, WHOLE, case.name, chat)
                with form.reading("the answer"):
                    answer = chat_answer(reply.body) if reply.answered else None
                self._unlimited_answers[case.conversation] = answer
            return self._unlimited_answers[case.conversation]

    def _ask(  # noqa: PLR0917
        self,
        dialect: str,
        mode: str,
        case: DialectCase,
        chat: Mapping[str, Any],
        prompt_ids: Sequence[int],
        offered: frozenset[str] | None,
    ) -> Reply | None:
        path = PATHS[dialect]
        if dialect in self._left_out:
            return None
        if offered is not None and path not in offered:
            self._left_out[dialect] = f"the server has no {path}"
            return None
        try:
            request = _request(dialect, chat, prompt_ids)
            if case.official_switch:
                request = _switched_off(dialect, request)
        except NoPlace as reason:
            self._left_out[f"{dialect}: {case.name}"] = str(reason)
            return None
        reply = self._client.ask(dialect, mode, case.name, request)
        if offered is None and reply.status in MISSING:
            self._left_out[dialect] = f"{path} is answered with {reply.status}"
            return None
        return reply

    def _count(self, chat: Mapping[str, Any], offered: frozenset[str] | None) -> dict[str, Any]:
        """Call the routes that count or render a prompt; return fields of the dialogue."""
        counts: dict[str, int] = {}
        requests: dict[str, Mapping[str, Any]] = {}
        rendered: dict[str, tuple[int, ...]] = {}
        sampling: dict[str, Mapping[str, Any]] = {}
        tokenized = {name: chat[name] for name in TOKENIZED if name in chat}
        wanted = {
            http.TOKENIZE: (tokenized, "tokens"),
            http.RENDER: (chat, "token_ids"),
            f"{responses.PATH}/render": (responses.request(chat), "token_ids"),
            f"{messages.PATH}/render": (messages.request(chat), "token_ids"),
            messages.COUNT: (messages.count_request(chat), "input_tokens"),
        }
        for path, (body, key) in wanted.items():
            if offered is not None and path not in offered:
                self._left_out[path] = f"the server has no {path}"
                continue
            with self._lock:
                self._counted += 1
            reply = http.post(self._endpoint, path, body)
            if not reply.is_success:
                self._left_out[path] = f"answered {reply.status_code}"
                continue
            requests[path] = body
            with form.reading(f"the answer of {path}"):
                told = reply.json()
                value = told[key]
                if isinstance(value, list):
                    rendered[path] = tuple(form.token_ids(value, key))
                counts[path] = len(value) if isinstance(value, list) else form.count(value, key)
                if "count" in told:  # beside the tokens themselves
                    counts[f"{path}, count"] = form.count(told["count"], "count")
                sampling[path] = dict(told.get("sampling_params") or {})
        return {
            "counts": counts,
            "count_requests": requests,
            "rendered": rendered,
            "sampling": sampling,
        }


def _request(dialect: str, chat: Mapping[str, Any], prompt_ids: Sequence[int]) -> dict[str, Any]:
    if dialect == COMPLETIONS:
        return completions.request(chat, prompt_ids)
    return responses.request(chat) if dialect == RESPONSES else messages.request(chat)


def _switched_off(dialect: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return a request that turns thinking off by the dialect's parameter."""
    plain = {name: value for name, value in request.items() if name != "chat_template_kwargs"}
    if dialect == RESPONSES:
        return {**plain, "reasoning": {"effort": "none"}}
    return {**plain, "thinking": {"type": "disabled"}}
