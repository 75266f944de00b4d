"""Compares the memory plan with logs of public boots: `python benchmarks/public_boots.py`.

For each kind of boot in `benchmarks/recorded/public_boots.toml` it prints how many plans agree with
the log's figures within their rounding and within 2 %: the weights on a device, the memory left for
the cache, and, for the memory that the log prints, the tokens. Then it prints for how many boots
the cache memory is within the plan's interval, for boots that the constants were fitted to and for
others.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_vllm_gates.memory_plan import runtime, weights as model_weights
from pytest_vllm_gates.memory_plan.plan import plan
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import GIB, Room, Serving

BOOTS = Path(__file__).parent / "recorded" / "public_boots.toml"
ROUNDED_GIB = 0.0051
"""Half of the last digit that a log prints, and the error of floats."""
SEGMENT_GIB = 20 / 1024
"""The memory that torch's allocator may reserve beyond the weights (`kLargeBuffer`)."""
NEAR = 0.02
LEAST_WITHIN = 0.9
"""The share of boots that must be within the plan's interval."""


@dataclass(frozen=True)
class Compared:
    """A figure in a boot's log, and its planned value."""

    name: str
    printed: float
    planned: float
    slack: float
    """The largest error of the printed figure by rounding."""

    @property
    def held(self) -> bool:
        """Whether the plan is within the log's rounding."""
        return abs(self.planned - self.printed) <= self.slack

    @property
    def near(self) -> bool:
        """Whether the plan is within 2 %."""
        return self.held or abs(self.planned - self.printed) <= NEAR * abs(self.printed)


@dataclass(frozen=True)
class Boot:
    """One boot with its figures, and whether its cache memory is within the plan's interval."""

    name: str
    kind: str
    calibrates: bool
    figures: tuple[Compared, ...]
    low: float
    planned: float
    high: float
    """GiB that the runtime takes by the plan."""
    took: float | None
    """GiB that it took: what the log leaves between budget, weights and cache."""

    @property
    def within(self) -> bool:
        """Whether the runtime's real memory is within the plan's interval."""
        return self.took is not None and self.low <= self.took <= self.high


def boots() -> list[Boot]:
    """Return the public boots, each planned with its own flags."""
    document = tomllib.loads(BOOTS.read_text(encoding="utf-8"))
    return [_planned(each, document) for each in document["boot"]]


def _planned(boot: dict[str, Any], document: dict[str, Any]) -> Boot:
    shape = shape_of(document["model"][boot["model"]])
    memory = int(boot["device_gib"] * GIB)
    serving = Serving(
        vllm_version=boot["version"], device_memory=memory, a100=boot["device"] == "a100",
        blackwell=boot["device"] == "b200", **boot["flags"],
    )  # fmt: skip
    estimate = runtime.runtime(shape, serving)
    budget = boot["device_gib"] * boot["utilization"]
    size = model_weights.weights(shape, serving, None)
    figures = []
    if size and boot.get("weights_planned", True):
        on_device = size.bytes_per_device / GIB
        figures.append(
            Compared("weights", boot["weights_gib"], on_device, ROUNDED_GIB + SEGMENT_GIB)
        )
    printed_cache = boot.get("kv_gib")
    room = Room(kv_memory=int(printed_cache * GIB)) if printed_cache else None
    if room and boot.get("tokens"):
        pool = plan(shape, serving, room)
        if pool.low and pool.high:
            slack = max(pool.high.tokens - boot["tokens"], boot["tokens"] - pool.low.tokens)
            inside = pool.low.tokens <= boot["tokens"] <= pool.high.tokens
            middle = (pool.low.tokens + pool.high.tokens) / 2
            figures.append(Compared("tokens", boot["tokens"], middle, slack if inside else 0))
    cache = printed_cache or _cache_of(boot, shape)
    took = None
    if cache is not None:
        took = budget - boot["weights_gib"] - cache
        planned_cache = budget - boot["weights_gib"] - estimate.middle / GIB
        figures.append(Compared("cache", cache, planned_cache, 2 * ROUNDED_GIB))
    devices = f" tp {serving.tensor_parallel_size} pp {serving.pipeline_parallel_size}"
    return Boot(
        f"{boot['model']}{devices} vLLM {boot['version']} {boot['device']}", boot["kind"],
        document["source"][boot["source"]]["calibrates"], tuple(figures),
        estimate.low / GIB, estimate.middle / GIB, estimate.high / GIB, took,
    )  # fmt: skip


def _cache_of(boot: dict[str, Any], shape: Any) -> float | None:
    """Return the cache's memory in GiB, from its tokens and a token's bytes; None without them."""
    serving = Serving(vllm_version=boot["version"], **boot["flags"])
    sample = plan(shape, serving, Room(kv_memory=10 * GIB)).pool
    return 10 * boot["tokens"] / sample.tokens if sample and boot.get("tokens") else None


def _lines(found: list[Boot]) -> list[str]:
    kinds: dict[str, list[Boot]] = defaultdict(list)
    for boot in found:
        kinds[boot.kind].append(boot)
    lines = []
    for kind, of_kind in (*sorted(kinds.items()), ("all", found)):
        cells = []
        for name in ("weights", "tokens", "cache"):
            figures = [each for boot in of_kind for each in boot.figures if each.name == name]
            held, near = sum(each.held for each in figures), sum(each.near for each in figures)
            cells.append(f"{name} {held:2} exact, {near:2} within 2 % of {len(figures):2}")
        within = sum(boot.within for boot in of_kind)
        lines.append(f"{kind:16} {'   '.join(cells)}   interval {within:2} of {len(of_kind)}")
    return lines


def main() -> int:
    """Print the table; return 1 if too few boots are within the plan's interval."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--each", action="store_true", help="also a line for each boot")
    options = parser.parse_args()
    found = boots()
    lines = _lines(found)
    for calibrates, name in ((True, "fitted to"), (False, "not fitted to")):
        of_these = [boot for boot in found if boot.calibrates is calibrates]
        within = sum(boot.within for boot in of_these)
        lines.append(f"within the interval, of boots {name}: {within} of {len(of_these)}")
    width = sum(boot.high - boot.low for boot in found) / len(found)
    lines.append(f"the interval is {width:.2f} GiB wide on average")
    if options.each:
        for boot in found:
            took = "unknown" if boot.took is None else f"{boot.took:.2f}"
            lines.append(
                f"{boot.name}: took {took}, planned {boot.planned:.2f} "
                f"({boot.low:.2f} to {boot.high:.2f}){'' if boot.within else '  OUTSIDE'}"
            )
            lines += [
                f"    {each.name}: printed {each.printed:,.6g}, planned {each.planned:,.6g}"
                for each in boot.figures
                if not each.near
            ]
    print(json.dumps(lines, indent=2) if options.json else "\n".join(lines))
    return int(sum(boot.within for boot in found) < LEAST_WITHIN * len(found))


if __name__ == "__main__":
    sys.exit(main())
