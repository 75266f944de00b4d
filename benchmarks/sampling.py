"""Measures how well the sampling gate finds wrong samplers, and how often a right one fails.

    python benchmarks/sampling.py
    python benchmarks/sampling.py --family qwen3.5 --clean 250

`recorded/sampling_laws.json` has the log-probability of every token that real vLLM returned on
2026-11-25 for each miniature's next token, at the prompt that the gate chose there. The gate's own
probes and tests run on simulated draws from these laws; `pytest -m sampling` and
`tests/faults/test_sampling.py` check that a real server's draws follow its log-probabilities.
Prints for each fault the share of trials in which the parameter's own probes end with FAIL within
8,192 tokens, and the tokens they take; then the alarms and the tokens of whole gates on a right
sampler. A thinking budget is judged by one greedy answer, so its trials are the possible lengths of
reasoning. Exits 1 if a fault is missed in more than 1 % of the trials, or if a right sampler fails.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_vllm_gates.gates.test_sampling import LEAST_THOUGHT, SLACK, THOUGHT_TOKENS
from pytest_vllm_gates.sampling import checks, plan, probes, seeds
from pytest_vllm_gates.sampling.measure import OFFSETS, Judged, Sampler
from pytest_vllm_gates.sampling.position import Position
from pytest_vllm_gates.sampling.types import Law, Parameters

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from simulated_sampler import SimulatedServer  # type: ignore[import-not-found, unused-ignore]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RECORDED = Path(__file__).parent / "recorded" / "sampling_laws.json"
MOST_TOKENS = 8192
BUDGET = 2


def ignoring(name: str) -> Callable[[Parameters], Parameters]:
    """Return the fault of a sampler that ignores a parameter."""
    default = getattr(Parameters(), name)
    return lambda asked: replace(asked, **{name: default})


def when(name: str, value: Any, **instead: Any) -> Callable[[Parameters], Parameters]:
    """Return the fault of a sampler that changes values if a parameter has this value."""
    return lambda asked: replace(asked, **instead) if getattr(asked, name) == value else asked


def shifted(by: float) -> Callable[[Parameters], Parameters]:
    """Return the fault of a sampler that cuts at another top_p."""
    return lambda asked: replace(asked, top_p=asked.top_p + by) if asked.top_p < 1 else asked


SHAPES: dict[str, tuple[str, Callable[[Parameters], Parameters]]] = {
    "temperature 0.9 for 1.0": ("", when("temperature", 1.0, temperature=0.9)),
    "temperature 0.95 for 1.0": ("", when("temperature", 1.0, temperature=0.95)),
    "top_k 50 for none": ("", when("top_k", 0, top_k=50)),
    "top_p + 0.05": ("top_p", shifted(0.05)),
    "top_p - 0.05": ("top_p", shifted(-0.05)),
    **{
        f"{name} ignored": (name, ignoring(name))
        for name in (
            "temperature", "min_p", "repetition_penalty", "presence_penalty",
            "frequency_penalty", "logit_bias", "allowed_token_ids",
        )
    },
}  # fmt: skip
"""By fault: the parameter whose probes have to find it, or "", and its effect."""

SEEDS: dict[str, Callable[[int | None, bool], int | None]] = {
    "seed ignored": lambda _seed, _crowd: None,
    "seed shared among requests at once": lambda seed, crowd: 7 if crowd else seed,
    "every request has one seed": lambda _seed, _crowd: 7,
}


def judged(sampler: Sampler) -> Iterator[Judged]:
    """Yield the gate's results, one parameter after the other."""
    yield sampler.judge(probes.untouched())
    yield from (sampler.judge(probe) for probe in probes.shaping(sampler.position.law))
    yield from penalties(sampler)


def penalties(sampler: Sampler, name: str | None = None) -> Iterator[Judged]:
    """Yield the gate's results for penalties, or for one of them."""
    tokens = sampler.window()
    for probe in probes.counting(tokens):
        if name in (None, probe.name):
            yield sampler.judge_steps(probe, tokens)
    probe = probes.repeating(tokens)
    if name in (None, probe.name):
        yield sampler.judge_steps(probe, tokens, repeated=tokens[::2], offsets=OFFSETS)


def judged_of(sampler: Sampler, name: str) -> Iterator[Judged]:
    """Yield the gate's results for one parameter."""
    if not name:
        yield sampler.judge(probes.untouched())
    elif name.endswith("_penalty"):
        yield from penalties(sampler, name)
    else:
        fitting = (probe for probe in probes.shaping(sampler.position.law) if probe.name == name)
        yield from (sampler.judge(probe) for probe in fitting)


def seeded(server: SimulatedServer, odds: Any) -> list[str]:
    """Return the failures of the gate's tests of seeds."""
    position = (0,)
    alone = [server.complete(position, seeds.body(seed))[0] for seed in seeds.SEEDS]
    again = [server.complete(position, seeds.body(seed))[0] for seed in seeds.SEEDS]
    server.crowd = True
    together = [server.complete(position, seeds.body(seed))[0] for seed in seeds.SEEDS]
    server.crowd = False
    unseeded = [server.complete(position, seeds.body(None, seeds.MANY)) for _ in range(2)]
    tests = {
        "again": checks.repeats(zip(alone, again, strict=True), odds),
        "among others": checks.repeats(zip(alone, together, strict=True), odds),
        "another seed": checks.differs(pairwise(alone), odds),
        "no seed": checks.differs(zip(*unseeded, strict=True), odds),
    }
    return [name for name, test in tests.items() if test.fails]


def tokens_to_find(
    position: Position,
    name: str,
    change: Callable[[Parameters], Parameters],
    random: np.random.Generator,
) -> int | None:
    """Return the tokens until a parameter's probes FAIL for a fault, None if they do not."""
    server = SimulatedServer(position.law, random, change)
    settings = plan.load()
    sampler = Sampler(server, position, settings.odds, settings.most_draws)  # type: ignore[arg-type]
    found = any(each.test.fails for each in judged_of(sampler, name))
    return server.tokens if found and server.tokens <= MOST_TOKENS else None


def without_budget(thoughts: int) -> Iterator[int | None]:
    """Yield the tokens until an ignored thinking budget is found, by length of reasoning."""
    for free in range(LEAST_THOUGHT, THOUGHT_TOKENS + 1):
        found = checks.budget_fault(free, free, BUDGET, SLACK)
        yield (thoughts + 1) * free if found else None


def laws(path: Path) -> dict[str, Position]:
    """Read the recorded laws by family."""
    recorded = json.loads(path.read_text(encoding="utf-8"))
    return {
        family: Position((0,), Law.of(dict(enumerate(logs))), whole=True, exact=True, tells=True)
        for family, logs in recorded.items()
    }


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", action="append")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--clean", type=int, default=1000)
    arguments = parser.parse_args()
    random = np.random.default_rng(20261125)
    settings = plan.load()
    bad = 0
    print(f"{'fault':36} {'family':10} found   tokens until then: median, 99 of 100")
    positions = laws(RECORDED)
    for family in arguments.family or positions:
        position = positions[family]
        for name, (parameter, change) in SHAPES.items():
            found = [
                tokens_to_find(position, parameter, change, random) for _ in range(arguments.trials)
            ]
            hits = [tokens for tokens in found if tokens is not None]
            bad += len(hits) < 0.99 * len(found)
            median, most = np.percentile(hits, [50, 99]) if hits else (np.nan, np.nan)
            print(f"{name:36} {family:10} {len(hits)}/{len(found)} {median:8.0f} {most:8.0f}")
        for name, seed_of in SEEDS.items():
            servers = [
                SimulatedServer(position.law, random, seed_of=seed_of)
                for _ in range(arguments.trials)
            ]
            hit = sum(bool(seeded(server, settings.odds)) for server in servers)
            bad += hit < 0.99 * len(servers)
            print(f"{name:36} {family:10} {hit}/{len(servers)} {servers[0].tokens:8}", flush=True)
        found = [*without_budget(len(settings.thoughts))]
        hits = [tokens for tokens in found if tokens is not None and tokens <= MOST_TOKENS]
        bad += len(hits) < 0.99 * len(found)
        median, most = np.percentile(hits, [50, 99]) if hits else (np.nan, np.nan)
        name = "thinking_token_budget ignored"
        print(f"{name:36} {family:10} {len(hits)}/{len(found)} {median:8.0f} {most:8.0f}")
        alarms = open_ = 0
        spent = []
        for _ in range(arguments.clean):
            server = SimulatedServer(position.law, random)
            sampler = Sampler(server, position, settings.odds, settings.most_draws)  # type: ignore[arg-type]
            results = [each.test for each in judged(sampler)]
            alarms += any(test.fails for test in results) or bool(seeded(server, settings.odds))
            open_ += any(not test.decided for test in results)
            spent.append(server.tokens)
        bad += alarms
        print(
            f"{'none (clean)':36} {family:10} {alarms} alarms and {open_} undecided of "
            f"{arguments.clean}; tokens: median {np.median(spent):.0f}, most {max(spent)}"
        )
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
