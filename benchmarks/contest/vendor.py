"""The two checks of Kimi's vendor verifier, as its README describes them.

https://github.com/MoonshotAI/K2-Vendor-Verifier: `tool_call_f1` compares the requests that a server
ends with finish_reason `tool_calls` with those of the reference; `schema_accuracy` is the share of
these answers whose arguments fit the declared schema. The README calls an F1 above 80 % acceptable
for K2-0905 (73 % for K2-thinking) and prints 100 % as schema accuracy of the reference. It sends
4,000 requests to a model that samples; the miniatures answer greedily, so fewer suffice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.contest.types import Reply

ACCEPTABLE_F1 = 0.80
CALLED = "tool_calls"


def f1(replies: Mapping[str, Reply], reference: Mapping[str, Reply]) -> float | None:
    """Return the harmonic mean of precision and recall; None where neither side calls a tool."""
    pairs = [
        (replies[name].finish_reason == CALLED if name in replies else False,
         reference[name].finish_reason == CALLED)
        for name in reference
    ]  # fmt: skip
    both = sum(ours and theirs for ours, theirs in pairs)
    either = sum(ours + theirs for ours, theirs in pairs)
    return 2 * both / either if either else None


def schema_accuracy(replies: Mapping[str, Reply]) -> float | None:
    """Return the share of answers with finish_reason `tool_calls` whose arguments fit."""
    called = [reply for reply in replies.values() if reply.finish_reason == CALLED]
    return sum(bool(reply.schema_valid) for reply in called) / len(called) if called else None


def judge(replies: Mapping[str, Reply], reference: Mapping[str, Reply]) -> tuple[bool | None, str]:
    """Return whether one of the two is below its limit; None where the family calls no tools."""
    score = f1(replies, reference)
    accuracy = schema_accuracy(replies)
    if score is None:
        return None, "no tool is called"
    shown = f"F1 {score:.2f}, schema accuracy {'-' if accuracy is None else f'{accuracy:.2f}'}"
    return score < ACCEPTABLE_F1 or (accuracy is not None and accuracy < 1), shown
