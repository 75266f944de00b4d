"""A text comes back from its tokens, and the reported counts are right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_vllm_gates.dialects import token_routes
from pytest_vllm_gates.dialects.token_routes import TokenTrip
from pytest_vllm_gates.outcomes import Case

RIGHT = TokenTrip(
    Case("x"), {"count": 3, "tokens": [1, 2, 3], "max_model_len": 4096}, " a b ", (1, 2, 3), 4096
)


@pytest.mark.parametrize(
    "trip",
    [
        RIGHT,
        replace(RIGHT, back="a b"),  # written otherwise, and the same tokens
        replace(RIGHT, context=None),
        replace(RIGHT, there={"count": 3, "tokens": [1, 2, 3]}),
    ],
)
def test_right_conversions_have_no_fault(trip: TokenTrip) -> None:
    assert list(token_routes.faults(trip)) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"there": {"count": 4, "tokens": [1, 2, 3]}}, "count is 4, and the answer has 3 tokens"),
        ({"context": 2048}, "max_model_len is 4096, and /v1/models reports 2048"),
        ({"back": "a b", "again": (2, 3)}, "'a b', which has 2 tokens and not the same 3"),
        ({"again": (1, 3, 2)}, "which has 3 tokens and not the same 3"),
    ],
)
def test_a_fault_of_a_conversion_is_reported(changes: dict[str, Any], says: str) -> None:
    assert says in "; ".join(token_routes.faults(replace(RIGHT, **changes)))
