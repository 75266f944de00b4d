"""Checks the end of an answer: its finish reason, its usage, and the place of a cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.answer import Answer, Exchange


def empty_stop(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence if the model ended its answer and the answer is empty.

    An answer that the request's stop ended may be empty.
    """
    answer = exchange.whole
    if answer is None or exchange.stopped or answer.finish_reason != "stop":
        return
    if not answer.has_text and not answer.tool_calls:
        where = " (everything is in reasoning)" if answer.reasoning else ""
        yield f"finish_reason is 'stop', and there is neither content nor a call{where}"


def unknown_reason(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence if the finish reason is missing or not one of OpenAI's."""
    answer = exchange.whole
    if answer and answer.finish_reason not in ("stop", "length", "tool_calls"):
        yield f"finish_reason is {answer.finish_reason!r}"


def limit(answer: Answer, max_tokens: int, least: int | None = None) -> Iterator[str]:
    """Yield a sentence if the finish reason is `length` below the limit, or it is exceeded.

    If a request has two limits, `least` is the lower one.
    """
    if answer.usage is None:
        yield "the answer counts no tokens: usage is missing"
        return
    used = answer.usage.completion_tokens
    if answer.finish_reason == "length" and used < (least or max_tokens):
        yield f"finish_reason is 'length' after {used} tokens of {max_tokens}"
    if used > max_tokens:
        yield f"{used} tokens were generated, {max_tokens} were allowed"


def wrong_reason(answer: Answer, expected: str) -> Iterator[str]:
    """Yield a sentence if the finish reason is not the expected one."""
    if answer.finish_reason != expected:
        yield f"finish_reason is {answer.finish_reason!r}, expected {expected!r}"


def usage(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence if usage does not count the tokens that were sent."""
    answer = exchange.whole
    if answer and answer.usage and answer.token_ids:
        counted = answer.usage.completion_tokens
        if counted != len(answer.token_ids):
            yield f"usage counts {counted} tokens, and {len(answer.token_ids)} token ids came"


SHOWN = 80

NO_CHARACTER = "\N{REPLACEMENT CHARACTER}"


def comparable(cut: Answer, plain: Answer) -> bool:
    """Return whether a cut answer was generated like the plain one; otherwise it proves nothing."""
    return cut.token_ids == plain.token_ids[: len(cut.token_ids)]


def beginning(cut: Answer, plain: Answer, family: Family) -> Iterator[str]:
    """Yield a sentence for each field of a cut answer that is not the plain one's beginning.

    Both answer one greedy request, and are `comparable`. A possible beginning of a marker at the
    cut does not count, nor half a character. A plain answer that its own limit cut may continue
    in the other one.
    """
    longer = len(cut.reasoning + cut.content) >= len(plain.reasoning + plain.content)
    for field in ("reasoning", "content"):
        text, plain_text = getattr(cut, field).strip(), getattr(plain, field).strip()
        text = _ended(text.rstrip(NO_CHARACTER), family)
        plain_start = _ended(plain_text.rstrip(NO_CHARACTER), family)
        goes_on = longer and plain.finish_reason == "length" and text.startswith(plain_start)
        if not (plain_text.startswith(text) or goes_on):
            beginning = f"the uncut answer begins with {plain_text[:SHOWN]!r}"
            yield f"{field} is {text[:SHOWN]!r}, and {beginning}"


def _ended(text: str, family: Family) -> str:
    """Return a text without a possible beginning of a marker at its end."""
    longest = max(
        (size for marker in family.markers for size in range(1, len(marker))
         if text.endswith(marker[:size])),
        default=0,
    )  # fmt: skip
    return text[: len(text) - longest].rstrip()
