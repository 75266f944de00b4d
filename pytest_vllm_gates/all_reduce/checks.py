"""Did the ranks sum what they were to, and how fast; where they did not, which rank, and where."""

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
    the tensor's size over the time, and the bus's is that times 2(n - 1)/n, which does not depend
    on the number of ranks and is to be held against what the slowest link can do.
    """

    bytes: int
    round_s: float
    """Seconds of one all-reduce, the ranks' average."""
    algorithm: float
    bus: float


def bandwidths(seen: Ranks) -> tuple[Bandwidth, ...]:
    """Return the bandwidth of each size that all ranks of this machine came through."""
    return tuple(_bandwidth(sizes, seen.world) for sizes in zip(*_summed(seen), strict=False))


def _summed(seen: Ranks) -> list[tuple[RankSum, ...]]:
    return [rank.summed for rank in seen.ranks]


def _bandwidth(sizes: Sequence[RankSum], world: int) -> Bandwidth:
    round_s = sum(size.round_s for size in sizes) / len(sizes)
    algorithm = sizes[0].bytes / round_s / GIGA
    return Bandwidth(sizes[0].bytes, round_s, algorithm, algorithm * 2 * (world - 1) / world)


def failure(seen: Ranks, explanation: Explanation | None, hint: str) -> Failure:
    """Return the fault with what its log says of it, and with what to do next."""
    told = explanation
    if not seen.status:  # nothing failed of itself: only what has a name is the cause
        told = told if told and told.answer and seen.status is None else None
    return Failure(fault(seen), log=seen.log, hint=hint, explanation=told)


def interfaces(seen: Ranks) -> list[str]:
    """Return the interfaces the ranks talked over: by NCCL's own words, else by their sockets."""
    by_nccl = [seen.told[name] for name in ("infiniband", "sockets") if name in seen.told]
    by_socket = {address for rank in seen.ranks for address in rank.facts.get("addresses", ())}
    return by_nccl or sorted(by_socket)


def fault(seen: Ranks) -> str:
    """Return what went wrong, in one sentence; empty where nothing did."""
    if wrong := next(_wrong_sums(seen), ""):
        return wrong
    if seen.status is None:
        return _hang(seen)
    if seen.status != 0:
        return _end(seen)
    unseen = [rank.number for rank in seen.ranks if not rank.done]
    if unseen:
        return f"torchrun ended well, and {_ranks(unseen)} of {seen.world} did not come to the end"
    return ""


def _wrong_sums(seen: Ranks) -> Iterator[str]:
    for rank in seen.ranks:
        for rank_sum in rank.summed:
            if (wrong := rank_sum.wrong) is None:
                continue
            parts = (wrong.wanted - wrong.got) / wrong.unit - 1
            hint = ""
            if parts in range(seen.world):
                hint = f", as if the part of rank {parts:.0f} were missing"
            elif -parts - 2 in range(seen.world):
                hint = f", as if the part of rank {-parts - 2:.0f} were there twice"
            yield (
                f"the all-reduce over {seen.world} ranks sums wrongly: rank {rank.number} has "
                f"{wrong.got:g} in place of {wrong.wanted:g} at element {wrong.at} of "
                f"{in_words(rank_sum.bytes)} ({wrong.count} elements are wrong){hint}"
            )


def _hang(seen: Ranks) -> str:
    """Name the ranks that are furthest behind, and what the others wait in."""
    waited = f"after {seen.took_s:.0f} s, {seen.silent_s:.0f} s without a step"
    head = f"the all-reduce over {seen.world} ranks hangs ({waited})"
    behind = min(_place(rank) for rank in seen.ranks)
    late = [rank for rank in seen.ranks if _place(rank) == behind]
    ahead = [rank for rank in seen.ranks if _place(rank) > behind]
    where = "; ".join(_where(rank, seen) for rank in late)
    if not ahead:
        return f"{head}: all ranks of this machine are at the same place: {where}"
    # Those in front wait where they need the others; what only one does alone lies before that.
    step = min(ahead, key=_place).steps[-1].name
    waiting = "; ".join(_where(rank, seen) for rank in ahead)
    numbers = _ranks([rank.number for rank in late])
    return f"{head}: {numbers} of {seen.world} never came to {step}: {where}; {waiting}"


def _place(rank: Rank) -> int:
    return rank.steps[-1].number if rank.steps else -1


def _where(rank: Rank, seen: Ranks) -> str:
    if not rank.steps:
        return f"rank {rank.number} did not start" + (
            f", and is {rank.doing}" if rank.doing else ""
        )
    last = rank.steps[-1]
    state = f", and is {rank.doing}" if rank.doing else ""
    return f"rank {rank.number} has been in {last.name} for {seen.ended_s - last.at_s:.0f} s{state}"


def _end(seen: Ranks) -> str:
    """Name the rank that ended first, and what it said or was told."""
    head = f"the all-reduce over {seen.world} ranks failed"
    by_number = {rank.number: rank for rank in seen.ranks}
    for number, status in seen.ended:
        rank = by_number.get(number, Rank(number))
        where = f"in {rank.steps[-1].name}" if rank.steps else "before it started"
        said = f": {rank.failed}" if rank.failed else f" {_status(status)}"
        return f"{head}: rank {number} of {seen.world} ended {where}{said}"
    failed = next((rank for rank in seen.ranks if rank.failed), None)
    if failed:
        return f"{head}: rank {failed.number} of {seen.world}: {failed.failed}"
    return f"{head}: torchrun ended with exit status {seen.status} before a rank did anything"


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
