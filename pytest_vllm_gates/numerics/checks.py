"""Compares a server's log-probabilities with the reference, within the tolerance of its dtype."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.goldens import CorruptGolden
from pytest_vllm_gates.numerics.types import ReferenceScores, Scores

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TOLERANCES = data.FOLDER / "numerics.toml"
TITLE = "golden 1: numerics: "
END = "end of golden"


class Tolerance(toml.Record):
    """Nats by which log-probabilities may differ: on average, at 99 of 100 positions, at worst."""

    mean: float
    nearly_all: float
    worst: float


class Tolerances(toml.Record):
    """The tolerances of `numerics.toml`."""

    bfloat16: Tolerance
    float16: Tolerance
    float32: Tolerance


def tolerance_of(dtype: str) -> Tolerance:
    """Return the tolerance for a dtype; quantised and unknown ones get the widest."""
    tolerances = toml.load(TOLERANCES, Tolerances)
    allowed: Tolerance = getattr(tolerances, dtype, tolerances.bfloat16)
    return allowed


@dataclass(frozen=True)
class Distance:
    """The distance of two lists of log-probabilities, in nats, over `positions` tokens."""

    positions: int
    mean: float
    nearly_all: float
    """The bound of 99 of 100 positions, or of all but one of fewer: rounding that picks another
    expert moves a few more."""
    worst: float
    worst_at: int | None
    diverges_at: int | None = None
    """First position at which greedy outputs differ although the reference's lead was clear."""

    def faults(self, allowed: Tolerance) -> list[str]:
        """Return one sentence for everything beyond the tolerance."""
        sentences = []
        if self.mean > allowed.mean:
            sentences.append(f"mean distance {self.mean:.3f} nats, {allowed.mean} allowed")
        if self.nearly_all > allowed.nearly_all:
            sentences.append(
                f"more than {_strays(self.positions)} of {self.positions} positions are "
                f"{self.nearly_all:.2f} nats off and more, {allowed.nearly_all} allowed"
            )
        if self.worst > allowed.worst:
            sentences.append(
                f"{self.worst:.2f} nats apart at position {self.worst_at}, {allowed.worst} allowed"
            )
        if self.diverges_at is not None:
            sentences.append(
                f"another token from output position {self.diverges_at} on, where the reference's "
                "lead was clear"
            )
        return sentences


def prompt_distance(served: Scores, reference: Scores) -> Distance:
    """Compare the log-probabilities of a prompt's tokens."""
    return _distance(served.prompt_logprobs, reference.prompt_logprobs)


def output_distance(served: Scores, reference: Scores, allowed: Tolerance) -> Distance:
    """Compare greedy outputs up to their first difference.

    The difference is a fault only if the reference's best token led by more than the tolerance
    allows two log-probabilities to move.
    """
    pairs = zip(served.output, reference.output, strict=False)
    same = next((i for i, (token, expected) in enumerate(pairs) if token != expected), None)
    if same is None:
        same = min(len(served.output), len(reference.output))
        parted = len(served.output) != len(reference.output)
    else:
        parted = True
    certain = same >= len(reference.leads) or reference.leads[same] > 2 * allowed.nearly_all
    near = _distance(served.output_logprobs[:same], reference.output_logprobs[:same])
    return replace(near, diverges_at=same if parted and certain else None)


def _distance(served: Sequence[float], reference: Sequence[float]) -> Distance:
    if len(served) != len(reference):
        raise ValueError(f"{len(served)} log-probabilities against {len(reference)}")
    apart = [abs(score - expected) for score, expected in zip(served, reference, strict=True)]
    if not apart:
        return Distance(0, 0.0, 0.0, 0.0, None)
    worst_at = max(range(len(apart)), key=apart.__getitem__)
    nearly_all = sorted(apart)[max(0, len(apart) - 1 - _strays(len(apart)))]
    return Distance(len(apart), sum(apart) / len(apart), nearly_all, apart[worst_at], worst_at)


def written(title: str, reference: ReferenceScores) -> str:
    """Format a reference as a golden: a block per case, a line per list."""
    lines = [f"{TITLE}{title}", "", f"weights {reference.weights}", f"source {reference.source}"]
    for name, scores in reference.cases.items():
        lines += ["", f"case {name}"]
        lines += [f"{key} {' '.join(values)}".rstrip() for key, values in _lists(scores)]
    return "\n".join([*lines, "", END, ""])


def parsed(text: str) -> ReferenceScores:
    """Read the format of `written`; raises `CorruptGolden` for anything else."""
    heads: dict[str, str] = {}
    cases: dict[str, dict[str, str]] = {}
    target = heads
    for line in text.splitlines()[1:-1]:
        key, _, value = line.partition(" ")
        if key == "case":
            target = cases[value] = {}
        elif key:
            target[key] = value
    try:
        return ReferenceScores(
            weights=heads["weights"],
            source=heads["source"],
            cases={name: _scores(case) for name, case in cases.items()},
        )
    except (KeyError, ValueError) as error:
        raise CorruptGolden(f"the numerics golden cannot be read: {error}") from error


def _lists(scores: Scores) -> Iterator[tuple[str, list[str]]]:
    yield "prompt", [str(token) for token in scores.prompt]
    yield "prompt_logprobs", [f"{value:.4f}" for value in scores.prompt_logprobs]
    yield "output", [str(token) for token in scores.output]
    yield "output_logprobs", [f"{value:.4f}" for value in scores.output_logprobs]
    yield "leads", [f"{value:.4f}" for value in scores.leads]


def _scores(case: Mapping[str, str]) -> Scores:
    def numbers(key: str) -> tuple[float, ...]:
        return tuple(float(word) for word in case[key].split())

    def ids(key: str) -> tuple[int, ...]:
        return tuple(int(word) for word in case[key].split())

    scores = Scores(
        ids("prompt"), numbers("prompt_logprobs"), ids("output"), numbers("output_logprobs"),
        numbers("leads"),
    )  # fmt: skip
    if len(scores.prompt_logprobs) != len(scores.prompt) - 1:
        raise ValueError("a case has different numbers of log-probabilities and of tokens")
    return scores


def _strays(positions: int) -> int:
    """Return how many of so many positions may exceed the bound of nearly all."""
    return max(1, positions // 100)
