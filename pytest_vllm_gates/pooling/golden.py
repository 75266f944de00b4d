"""The golden of vectors: computed by transformers in fp32, or by a trusted server.

A golden contains only the vectors of the first texts: a large model's have thousands of numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.goldens import END, CorruptGolden

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.pooling.types import Vector

TITLE = "golden 1: vectors: "
MOST_TEXTS = 8
FP32 = "transformers in fp32"


@dataclass(frozen=True)
class TrustedVectors:
    """Vectors by the text's name, the weights' SHA-256, and their source."""

    weights: str
    source: str
    vectors: Mapping[str, Vector]


def written(title: str, trusted: TrustedVectors) -> str:
    """Format trusted vectors as a golden, one line per text."""
    lines = [f"{TITLE}{title}", "", f"weights {trusted.weights}", f"source {trusted.source}", ""]
    for name, vector in [*trusted.vectors.items()][:MOST_TEXTS]:
        numbers = " ".join(f"{number:.5g}" for number in vector)
        lines.append(f"vector {name}: {numbers}")
    return "\n".join([*lines, "", END, ""])


def parsed(text: str) -> TrustedVectors:
    """Read the format of `written`; raises `CorruptGolden` for anything else."""
    heads: dict[str, str] = {}
    vectors: dict[str, Vector] = {}
    try:
        for line in text.splitlines()[1:-1]:
            key, _, value = line.partition(" ")
            if key == "vector":
                name, _, numbers = value.partition(": ")
                vectors[name] = tuple(map(float, numbers.split()))
            elif key:
                heads[key] = value
        return TrustedVectors(heads["weights"], heads["source"], vectors)
    except (KeyError, ValueError) as error:
        raise CorruptGolden(f"the golden of vectors cannot be read: {error}") from error
