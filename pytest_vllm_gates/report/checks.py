"""An all-reduce between ranks, as a document and as a person reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.all_reduce import checks as judge
from pytest_vllm_gates.all_reduce.types import in_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.all_reduce.types import Ranks

OK, FAILS, NOT_RUN = "ok", "fails", "not run"
MICRO, MILLI = 1e6, 1e3


def not_run(why: str) -> dict[str, Any]:
    """Return the document of an all-reduce that was not tried, and why."""
    return {"state": NOT_RUN, "why": why}


def document(seen: Ranks) -> dict[str, Any]:
    """Return it as JSON. Bandwidths are in gigabytes (10^9 bytes) a second."""
    fault = judge.fault(seen)
    return {
        "state": FAILS if fault else OK,
        "why": fault,
        "backend": seen.backend,
        "world_size": seen.world,
        "interfaces": judge.interfaces(seen),
        "told": dict(seen.told),
        "devices": [rank.facts.get("device") for rank in seen.ranks],
        "torch": next((rank.facts["torch"] for rank in seen.ranks if "torch" in rank.facts), None),
        "took_s": seen.took_s,
        "sizes": [
            {"bytes": one.bytes, "round_s": one.round_s, "algbw": one.algorithm, "busbw": one.bus}
            for one in judge.bandwidths(seen)
        ],
        "ranks": [
            {
                "rank": rank.number,
                "step": rank.steps[-1].name if rank.steps else None,
                "addresses": list(rank.facts.get("addresses", ())),
                "failed": rank.failed or None,
                "doing": rank.doing or None,
            }
            for rank in seen.ranks
        ],
        "command": list(seen.command),
        "log": str(seen.log),
    }


def line(seen: Ranks) -> str:
    """Return one that went well in one line, with the bandwidth of its largest size."""
    best = judge.bandwidths(seen)[-1]
    return (
        f"all-reduce over {seen.world} ranks: right, by {_how(seen)}; {in_words(best.bytes)} in "
        f"{_time(best.round_s)}, bus bandwidth {best.bus:.2f} GB/s"
    )


def lines(seen: Ranks) -> Iterator[str]:
    """Yield what was measured, a line a size."""
    devices = sorted({str(rank.facts.get("device", "?")) for rank in seen.ranks})
    yield f"ranks       {seen.world} on {', '.join(devices)}"
    yield f"by          {_how(seen)}"
    if links := seen.told.get("links"):
        yield f"links       {links}"
    yield f"{'size':>10}  {'time':>10}  {'algbw GB/s':>10}  {'busbw GB/s':>10}"
    for one in judge.bandwidths(seen):
        yield (
            f"{in_words(one.bytes):>10}  {_time(one.round_s):>10}  {one.algorithm:>10.2f}  "
            f"{one.bus:>10.2f}"
        )


def _how(seen: Ranks) -> str:
    version = f" {seen.told['nccl']}" if "nccl" in seen.told else ""
    return f"{seen.backend}{version} over {', '.join(judge.interfaces(seen)) or 'no network'}"


def _time(seconds: float) -> str:
    return f"{seconds * MILLI:.1f} ms" if seconds >= 1 / MILLI else f"{seconds * MICRO:.0f} us"
