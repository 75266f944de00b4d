"""Checks that a stop ends an answer at its first occurrence, and changes nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.conversations.checks.agreement import differences
from pytest_vllm_gates.conversations.checks.content import fields
from pytest_vllm_gates.conversations.stop_strings import cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.answer import Answer, Exchange

SHOWN = 80
LONGEST_TOKEN = 16


def stop_in_fields(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence for every field that contains the stop string."""
    if exchange.whole is not None and isinstance(exchange.stop, str):
        yield from held_stop(exchange.whole, exchange.stop)


def held_stop(answer: Answer, stop: str) -> Iterator[str]:
    """Yield a sentence for every field of an answer that contains a stop string."""
    for field, text in fields(answer):
        if stop in text:
            yield f"{field} contains the stop string {stop!r}: {text[:SHOWN]!r}"


def changed_by_unused_stop(exchange: Exchange) -> Iterator[str]:
    """Yield the changes made by a stop string that never occurs."""
    if exchange.cell.stop != "never" or exchange.whole is None or exchange.unstopped is None:
        return
    for difference in differences(exchange.unstopped, exchange.whole, ("unstopped", "stopped")):
        yield f"with the stop string {exchange.stop!r}, which does not occur, {difference}"


def wrong_end(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence if an answer does not end at the first occurrence of its stop."""
    answer, plain = exchange.whole, exchange.unstopped
    if answer is None or plain is None or exchange.cell.stop == "never":
        return
    if isinstance(exchange.stop, int):
        yield from _at_token(exchange.stop, answer, plain)
    elif isinstance(exchange.stop, str):
        yield from cut_at(exchange.stop, answer, plain)


def cut_at(stop: str, stopped: Answer, plain: Answer) -> Iterator[str]:
    """Yield how `stopped` differs from `plain`, the answer without a stop, cut at `stop`.

    Reasoning comes before content, and a stop string counts in both, as in vLLM. White space at
    the cut does not count.
    """
    if stop in plain.reasoning:
        expected = {"reasoning": cut(plain.reasoning, stop), "content": ""}
    else:
        expected = {"reasoning": plain.reasoning, "content": cut(plain.content, stop)}
    actual = {"reasoning": stopped.reasoning, "content": stopped.content}
    for field, text in expected.items():
        if actual[field].strip() != text.strip():
            yield (
                f"stopped at {stop!r}, {field} is {actual[field][-SHOWN:]!r} and ought to be "
                f"{text[-SHOWN:]!r}"
            )
    if stopped.finish_reason != "stop":
        yield f"stopped at {stop!r}, finish_reason is {stopped.finish_reason!r}"


def cut_at_first(stop: Sequence[str], stopped: Answer, plain: Answer) -> list[str]:
    """Return how `stopped` differs from `plain` cut at the stop string that is complete first.

    Stop strings that one token completes together have no order: any of them is accepted.
    """
    ends = {text: _end(text, plain) for text in stop}
    first = min(ends.values())
    faults: list[str] = []
    for end in sorted(ends, key=ends.__getitem__):
        if ends[end] <= first + LONGEST_TOKEN:
            faults = list(cut_at(end, stopped, plain))
            if not faults:
                return []
    return faults


def in_a_tag(stop: Sequence[str], family: Family) -> bool:
    """Return whether a tag that the model writes around its thinking contains a stop."""
    thinking = family.thinking
    if thinking is None:
        return False
    tags = [thinking.close, *([thinking.open] if thinking.opened_by == "model" else [])]
    return any(text in tag for tag in tags for text in stop)


def _end(stop: str, plain: Answer) -> int:
    """Return the end of a stop string, in characters of reasoning and content."""
    if stop in plain.reasoning:
        return plain.reasoning.index(stop) + len(stop)
    return len(plain.reasoning) + plain.content.index(stop) + len(stop)


def _at_token(stop: int, stopped: Answer, plain: Answer) -> Iterator[str]:
    at = plain.token_ids.index(stop)
    expected = plain.token_ids[: at + 1]
    if stopped.token_ids != expected:
        yield (
            f"token {stop} has to stop the answer at its token {at}; "
            f"{len(stopped.token_ids)} tokens came, expected {len(expected)}"
        )
    elif stopped.finish_reason != "stop":
        yield f"stopped at token {stop}, finish_reason is {stopped.finish_reason!r}"
    elif not plain.content.startswith(stopped.content.rstrip()):
        yield f"stopped at token {stop}, content is {stopped.content[-SHOWN:]!r}"
