"""Repeats one request with other stop strings and token limits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_vllm_gates.client.answer import Answer
    from pytest_vllm_gates.client.chat import Chat

STOPS = 24
SEED = 20261120
LONGEST = 24
STRINGS_AT_ONCE = 3
SHORT_OF_A_CALL = (6, 4, 3)
"""Tokens by which a call is cut short: closing tags and the end of turn are two or three."""


class Pieces:
    """The answer to a request, and the answers with pieces of it as stop strings."""

    def __init__(self, chat: Chat, body: Mapping[str, Any], at_a_time: int = 1) -> None:
        """Send the request without a stop; `at_a_time` requests with stops will run at once."""
        self._chat = chat
        self._at_a_time = at_a_time
        self._body = dict(body)
        self.plain = chat.ask(self._body)

    def ask(self, stop: list[str]) -> tuple[Answer, dict[str, Any]]:
        """Return the answer with these stop strings, and the request's body."""
        body = {**self._body, "stop": stop}
        return self._chat.ask(body), body

    def stops(self) -> list[list[str]]:
        """Return lists of one to three pieces of the answer, the same in every run."""
        drawn: list[list[str]] = []
        texts = [text for text in (self.plain.reasoning, self.plain.content) if text.strip()]

        @st.composite
        def pieces(draw: st.DrawFn) -> str:
            text = draw(st.sampled_from(texts))
            start = draw(st.integers(0, len(text) - 1))
            length = draw(st.integers(1, min(LONGEST, len(text) - start)))
            return text[start : start + length]

        several = st.lists(
            pieces().filter(str.strip), min_size=1, max_size=STRINGS_AT_ONCE, unique=True
        )

        @seed(SEED)
        @settings(
            max_examples=STOPS,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(several)
        def run(stop: list[str]) -> None:
            drawn.append(stop)

        run()
        return drawn

    def ask_all(self) -> list[tuple[list[str], Answer, dict[str, Any]]]:
        """Return every stop of `stops` with its answer and request, in order."""
        drawn = self.stops()
        with ThreadPoolExecutor(self._at_a_time) as pool:
            asked = list(pool.map(self.ask, drawn))
        return [(stop, *answered) for stop, answered in zip(drawn, asked, strict=True)]


@dataclass(frozen=True)
class LimitedAnswer:
    """One answer under a token limit; `due` is the expected finish reason."""

    name: str
    kind: str
    mode: str
    """`whole` or `streamed`."""
    request: Mapping[str, Any]
    max_tokens: int
    due: str
    answer: Answer
    plain: Answer
    """The answer in the same mode without the limit."""
    least: int | None = None
    """The lower limit, if the request has two."""


def limits(
    chat: Chat, body: Mapping[str, Any], plain: Answer, at_a_time: int = 1
) -> list[LimitedAnswer]:
    """Send the request with limits below, at and above the length of the unlimited answer."""
    if plain.usage is None:
        return []
    length = plain.usage.completion_tokens
    limit_by_kind = {
        "one token": 1,
        "half": max(1, length // 2),
        "exact": length,
        "one more": length + 1,
    }
    if plain.reasoning.strip() and plain.has_text:
        thought = len(plain.reasoning) / (len(plain.reasoning) + len(plain.content))
        limit_by_kind["in the thinking"] = max(1, round(thought * length / 2))
    return _limited(chat, body, plain, limit_by_kind, at_a_time)


def limits_in_a_call(
    chat: Chat, bodies: Iterable[Mapping[str, Any]], at_a_time: int = 1
) -> list[LimitedAnswer]:
    """Send the first request that is answered with a call, with limits that cut the call short.

    Empty if none of them is, or if the server counts no tokens.
    """
    answers = ((body, chat.ask(body)) for body in bodies)
    body, plain = next((each for each in answers if each[1].tool_calls), ({}, None))
    if plain is None or plain.usage is None:
        return []
    length = plain.usage.completion_tokens
    short = [tokens for tokens in SHORT_OF_A_CALL if tokens < length]
    limit_by_kind = {f"{tokens} before a call's end": length - tokens for tokens in short}
    return _limited(chat, body, plain, limit_by_kind, at_a_time)


BOTH = 2
"""Tokens by which `max_completion_tokens` exceeds `max_tokens` if both are sent."""


def limits_by_name(chat: Chat, body: Mapping[str, Any], plain: Answer) -> list[LimitedAnswer]:
    """Cut an answer in its middle by each name of the limit, and by both at once.

    `max_tokens` is the older name (https://platform.openai.com/docs/api-reference/chat/create).
    If both are sent, the limit is the higher one: the API does not define which one counts.
    """
    if plain.usage is None or plain.usage.completion_tokens <= 2 * BOTH:
        return []
    half = plain.usage.completion_tokens // 2
    named: dict[str, dict[str, int | None]] = {
        "max_tokens": {"max_tokens": half},
        "max_completion_tokens": {"max_tokens": None, "max_completion_tokens": half},
        "both": {"max_tokens": half - BOTH, "max_completion_tokens": half},
    }
    answers = []
    for kind, limit in named.items():
        limited = {**body, **limit, "return_token_ids": True}
        request = {key: value for key, value in limited.items() if value is not None}
        for mode, ask in (("whole", chat.ask), ("streamed", chat.stream)):
            name = f"{kind} of {half}, {mode}"
            least = half - BOTH if kind == "both" else None
            answers.append(
                LimitedAnswer(name, kind, mode, request, half, "length", ask(request), plain, least)
            )
    return answers


def _limited(
    chat: Chat,
    body: Mapping[str, Any],
    plain: Answer,
    limit_by_kind: Mapping[str, int],
    at_a_time: int,
) -> list[LimitedAnswer]:
    length = plain.usage.completion_tokens if plain.usage else 0
    requests = {kind: {**body, "max_tokens": limit} for kind, limit in limit_by_kind.items()}
    with ThreadPoolExecutor(at_a_time) as pool:
        streamed = pool.submit(chat.stream, body)
        asked = {
            (kind, mode): pool.submit(ask, request)
            for kind, request in requests.items()
            for mode, ask in (("whole", chat.ask), ("streamed", chat.stream))
        }
        unlimited = {"whole": plain, "streamed": streamed.result()}
        return [
            LimitedAnswer(
                name=f"max_tokens {limit_by_kind[kind]} of {length} ({kind}), {mode}",
                kind=kind,
                mode=mode,
                request=requests[kind],
                max_tokens=limit_by_kind[kind],
                due="length" if limit_by_kind[kind] < length else plain.finish_reason or "stop",
                answer=answer.result(),
                plain=unlimited[mode],
            )
            for (kind, mode), answer in asked.items()
        ]
