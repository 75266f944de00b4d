"""Values of any type are read: a value of a wrong type reads as absent."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_vllm_gates.client import untyped

OTHERS: tuple[Any, ...] = (None, 7, 1.5, True, "a", [], {}, [None], {"a": 1})


@pytest.mark.parametrize("value", OTHERS)
def test_a_value_of_another_type_reads_as_absent(value: Any) -> None:
    assert untyped.record(value) == (value if isinstance(value, dict) else {})
    assert untyped.records(value) == []
    assert untyped.string(value) == (value if isinstance(value, str) else "")
    assert untyped.number(value) == (7 if value == 7 else 0)


def test_records_of_an_array_are_its_objects() -> None:
    assert untyped.records([{"a": 1}, None, "b", {}]) == [{"a": 1}, {}]


def test_indices_of_any_type_are_in_an_order_of_their_own() -> None:
    indices: list[Any] = ["0", None, 10, 9, [1], True, -1, 1.0]
    ordered = sorted(indices, key=untyped.index_key)
    assert ordered[:2] == [9, 10]
    assert len({untyped.index_key(index) for index in indices}) == len(indices)
    assert untyped.index_key(True) != untyped.index_key(1)


def test_values_are_shown_in_few_characters() -> None:
    assert untyped.shown("a") == "'a'"
    assert untyped.shown("a" * 100) == "'" + "a" * 58 + "…"
    assert untyped.shown(10**5000) == "a value too large to show"
