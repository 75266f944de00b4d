"""Does a stop end an answer where it first occurs, and change nothing where it does not?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.conversations.checks.agreement import differences
from pytest_vllm_gates.conversations.checks.content import fields
from pytest_vllm_gates.conversations.stop_strings import cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_vllm_gates.client.answer import Answer, Exchange

SHOWN = 80
LONGEST_TOKEN = 16


def shown(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence for every field that holds the stop string."""
    if exchange.whole is None or not isinstance(exchange.stop, str):
        return
    for field, text in fields(exchange.whole):
        if exchange.stop in text:
            yield f"{field} holds the stop string {exchange.stop!r}: {text[:SHOWN]!r}"


def idle(exchange: Exchange) -> Iterator[str]:
    """Yield what a stop string changed that never occurs."""
    if exchange.cell.stop != "never" or exchange.whole is None or exchange.unstopped is None:
        return
    for sentence in differences(exchange.unstopped, exchange.whole, ("unstopped", "stopped")):
        yield f"with the stop string {exchange.stop!r}, which does not occur, {sentence}"


def where(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence when an answer does not end where its stop first occurs."""
    whole, plain = exchange.whole, exchange.unstopped
    if whole is None or plain is None or exchange.cell.stop == "never":
        return
    if isinstance(exchange.stop, int):
        yield from _at_token(exchange.stop, whole, plain)
    elif isinstance(exchange.stop, str):
        yield from cut_at(exchange.stop, whole, plain)


def cut_at(stop: str, whole: Answer, plain: Answer) -> Iterator[str]:
    """Yield how `whole` is not `plain`, the answer without a stop, cut at `stop`.

    Reasoning comes before content, and a stop string counts in both, as vLLM has it. White space
    at the cut does not count.
    """
    if stop in plain.reasoning:
        wanted = {"reasoning": cut(plain.reasoning, stop), "content": ""}
    else:
        wanted = {"reasoning": plain.reasoning, "content": cut(plain.content, stop)}
    came = {"reasoning": whole.reasoning, "content": whole.content}
    for field, text in wanted.items():
        if came[field].strip() != text.strip():
            yield (
                f"stopped at {stop!r}, {field} is {came[field][-SHOWN:]!r} and ought to be "
                f"{text[-SHOWN:]!r}"
            )
    if whole.finish_reason != "stop":
        yield f"stopped at {stop!r}, finish_reason is {whole.finish_reason!r}"


def cut_at_first(stop: Sequence[str], whole: Answer, plain: Answer) -> list[str]:
    """Return how `whole` is not `plain` cut at whichever of its stop strings is complete first.

    Those that one token completes together have no order in time: any of them will do.
    """
    ends = {text: _end(text, plain) for text in stop}
    first = min(ends.values())
    told: list[str] = []
    for end in sorted(ends, key=ends.__getitem__):
        if ends[end] <= first + LONGEST_TOKEN:
            told = list(cut_at(end, whole, plain))
            if not told:
                return []
    return told


def _end(stop: str, plain: Answer) -> int:
    """Return where a stop string is complete, in characters of reasoning and content."""
    if stop in plain.reasoning:
        return plain.reasoning.index(stop) + len(stop)
    return len(plain.reasoning) + plain.content.index(stop) + len(stop)


def _at_token(stop: int, whole: Answer, plain: Answer) -> Iterator[str]:
    at = plain.token_ids.index(stop)
    wanted = plain.token_ids[: at + 1]
    if whole.token_ids != wanted:
        yield (
            f"token {stop} was to stop it and is the answer's token {at}; "
            f"{len(whole.token_ids)} tokens came where {len(wanted)} were due"
        )
    elif whole.finish_reason != "stop":
        yield f"stopped at token {stop}, finish_reason is {whole.finish_reason!r}"
    elif not plain.content.startswith(whole.content.rstrip()):
        yield f"stopped at token {stop}, content is {whole.content[-SHOWN:]!r}"
