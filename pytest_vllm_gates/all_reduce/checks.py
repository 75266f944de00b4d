"""Checks of an all-reduce: sums, bandwidths, and the rank that failed or hangs."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.all_reduce.types import Rank, Ranks, in_words
from pytest_vllm_gates.server.types import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_vllm_gates.all_reduce.types import RankSum
    from pytest_vllm_gates.server.failure import Explanation

GIGA = 1e9


@dataclass(frozen=True)
class Bandwidth:
    """How fast tensors of one size were summed, in gigabytes (10^9) a second.

    As NCCL's own tests define them (nccl-tests, doc/PERFORMANCE.md): the algorithm's bandwidth is
    the tensor's size over the time, and the bus bandwidth is that times 2(n - 1)/n, which does not
    depend on the number of ranks and compares with the speed of the slowest link.
    """

    bytes: int
    round_s: float
    """Seconds of one all-reduce, the ranks' average."""
    algorithm: float
    bus: float


def bandwidths(result: Ranks) -> tuple[Bandwidth, ...]:
    """Return the bandwidth of each size that all ranks of this machine completed."""
    return tuple(_bandwidth(sizes, result.world) for sizes in zip(*_summed(result), strict=False))


def _summed(result: Ranks) -> list[tuple[RankSum, ...]]:
    return [rank.summed for rank in result.ranks]


def _bandwidth(sizes: Sequence[RankSum], world: int) -> Bandwidth:
    round_s = sum(size.round_s for size in sizes) / len(sizes)
    algorithm = sizes[0].bytes / round_s / GIGA
    return Bandwidth(sizes[0].bytes, round_s, algorithm, algorithm * 2 * (world - 1) / world)


def failure(result: Ranks, explanation: Explanation | None, hint: str) -> Failure:
    """Return the fault with its log's explanation and a hint."""
    cause = explanation
    if not result.status:  # no rank failed: only a known hang explains it
        cause = cause if cause and cause.answer and result.status is None else None
    return Failure(fault(result), log=result.log, hint=hint, explanation=cause)


def interfaces(result: Ranks) -> list[str]:
    """Return the interfaces of the ranks' connections: by NCCL's log, else by their sockets."""
    by_nccl = [result.told[name] for name in ("infiniband", "sockets") if name in result.told]
    by_socket = {address for rank in result.ranks for address in rank.facts.get("addresses", ())}
    return by_nccl or sorted(by_socket)


def fault(result: Ranks) -> str:
    """Return the fault, in one sentence; empty if there is none."""
    if wrong := next(_wrong_sums(result), ""):
        return wrong
    if result.status is None:
        return _hang(result)
    if result.status != 0:
        return _end(result)
    unfinished = [rank.number for rank in result.ranks if not rank.done]
    if unfinished:
        return (
            f"torchrun ended well, and {_ranks(unfinished)} of {result.world} did not come to the "
            "end"
        )
    return ""


def _wrong_sums(result: Ranks) -> Iterator[str]:
    for rank in result.ranks:
        for rank_sum in rank.summed:
            if (wrong := rank_sum.wrong) is None:
                continue
            parts = (wrong.wanted - wrong.got) / wrong.unit - 1
            hint = ""
            if parts in range(result.world):
                hint = f", as if the part of rank {parts:.0f} were missing"
            elif -parts - 2 in range(result.world):
                hint = f", as if the part of rank {-parts - 2:.0f} were there twice"
            yield (
                f"the all-reduce over {result.world} ranks sums wrongly: rank {rank.number} has "
                f"{wrong.got:g} in place of {wrong.wanted:g} at element {wrong.at} of "
                f"{in_words(rank_sum.bytes)} ({wrong.count} elements are wrong){hint}"
            )


def _hang(result: Ranks) -> str:
    """Name the ranks that are furthest behind, and the step in which the others wait."""
    waited = f"after {result.took_s:.0f} s, {result.silent_s:.0f} s without a step"
    head = f"the all-reduce over {result.world} ranks hangs ({waited})"
    behind = min(_step_number(rank) for rank in result.ranks)
    late = [rank for rank in result.ranks if _step_number(rank) == behind]
    ahead = [rank for rank in result.ranks if _step_number(rank) > behind]
    positions = "; ".join(_position(rank, result) for rank in late)
    if not ahead:
        return f"{head}: all ranks of this machine are at the same place: {positions}"
    # Ranks in front wait where they need the others; a step that only one rank does is before.
    step = min(ahead, key=_step_number).steps[-1].name
    waiting = "; ".join(_position(rank, result) for rank in ahead)
    numbers = _ranks([rank.number for rank in late])
    return f"{head}: {numbers} of {result.world} never came to {step}: {positions}; {waiting}"


def _step_number(rank: Rank) -> int:
    return rank.steps[-1].number if rank.steps else -1


def _position(rank: Rank, result: Ranks) -> str:
    if not rank.steps:
        return f"rank {rank.number} did not start" + (
            f", and is {rank.doing}" if rank.doing else ""
        )
    last = rank.steps[-1]
    state = f", and is {rank.doing}" if rank.doing else ""
    return (
        f"rank {rank.number} has been in {last.name} for {result.ended_s - last.at_s:.0f} s{state}"
    )


def _end(result: Ranks) -> str:
    """Name the rank that ended first, with its error or status."""
    head = f"the all-reduce over {result.world} ranks failed"
    by_number = {rank.number: rank for rank in result.ranks}
    for number, status in result.ended:
        rank = by_number.get(number, Rank(number))
        position = f"in {rank.steps[-1].name}" if rank.steps else "before it started"
        reason = f": {rank.failed}" if rank.failed else f" {_status(status)}"
        return f"{head}: rank {number} of {result.world} ended {position}{reason}"
    failed = next((rank for rank in result.ranks if rank.failed), None)
    if failed:
        return f"{head}: rank {failed.number} of {result.world}: {failed.failed}"
    return f"{head}: torchrun ended with exit status {result.status} before a rank did anything"


def _status(status: int) -> str:
    if status >= 0:
        return f"with exit status {status}"
    try:
        return f"by {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"


def _ranks(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers))
    return f"rank {listed}" if len(numbers) == 1 else f"ranks {listed}"
