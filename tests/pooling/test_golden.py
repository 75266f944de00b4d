"""Trusted vectors come back from their golden, and a damaged one is refused."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.goldens import CorruptGolden
from pytest_vllm_gates.pooling import golden
from pytest_vllm_gates.pooling.golden import TrustedVectors

VECTORS = {f"question {number}": (0.123456, -1.5e-7, float(number)) for number in range(12)}
TRUSTED = TrustedVectors("ab" * 32, "a server of vLLM 0.32.0", VECTORS)


def test_the_first_vectors_come_back() -> None:
    again = golden.parsed(golden.written("Qwen3 Embedding", TRUSTED))
    assert (again.weights, again.source) == (TRUSTED.weights, TRUSTED.source)
    assert [*again.vectors] == [*VECTORS][: golden.MOST_TEXTS]
    assert again.vectors["question 3"] == pytest.approx((0.123456, -1.5e-7, 3.0), rel=1e-4)


@pytest.mark.parametrize("spoiled", ["weights", "source", "0.12346"])
def test_a_damaged_golden_is_refused(spoiled: str) -> None:
    text = golden.written("Qwen3 Embedding", TRUSTED).replace(spoiled, "x")
    with pytest.raises(CorruptGolden, match="the golden of vectors cannot be read"):
        golden.parsed(text)
