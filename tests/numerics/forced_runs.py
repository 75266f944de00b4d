"""Runs of the forced texts: recorded ones of real vLLM, and made ones."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

from pytest_vllm_gates.numerics.forced_types import ForcedRun, ForcedText

FILE = Path(__file__).parents[1] / "recorded" / "numerics" / "forced-qwen3.5.json"
FAULTS = ("kvfp8", "fp8", "int8", "theta0.99")


def recorded(how: str = "base") -> ForcedRun:
    """Return a recorded run; the batch changed nothing there."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    texts = tuple(
        ForcedText(name, tuple(content["ids"][name]), tuple(scores), tuple(scores))
        for name, scores in content["runs"][how].items()
    )
    return ForcedRun("w", "0.32.0", "EPYC", texts)


def made(*, noise: float = 0.0, seed: int = 0, texts: int = 12, tokens: int = 120) -> ForcedRun:
    """Return a run whose scores, alone and in a batch, are off by Gaussian noise in nats."""
    truth, chance = random.Random(1), random.Random(seed)  # noqa: S311 - the same in every run
    forced = []
    for number in range(texts):
        right = [-truth.expovariate(0.5) for _ in range(tokens)]
        alone, together = (
            tuple(score + chance.gauss(0, noise) for score in right) for _ in range(2)
        )
        ids = tuple(range(tokens + 1))
        answer = tuple(range(16))
        scores = tuple(-0.5 + chance.gauss(0, noise) for _ in answer)
        forced.append(ForcedText(f"text {number}", ids, alone, together, answer, scores))
    return ForcedRun("w", "0.32.0", "H100", tuple(forced))


def changed(run: ForcedRun, **fields: object) -> ForcedRun:
    """Return the run with these fields of every text, each made by a function of the text."""
    return replace(
        run,
        texts=tuple(
            replace(text, **{name: make(text) for name, make in fields.items()})  # type: ignore[operator]
            for text in run.texts
        ),
    )
