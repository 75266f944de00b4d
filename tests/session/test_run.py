"""A measurement of one test is shared with the next, by family, until it is cleared."""

from __future__ import annotations

from pytest_vllm_gates.session.run import Measured


def test_a_value_is_measured_once_a_family() -> None:
    measured, calls = Measured(), iter("abc")
    assert [measured.once("glm", "walk", lambda: next(calls)) for _ in range(2)] == ["a", "a"]
    assert measured.once("qwen3.5", "walk", lambda: next(calls)) == "b"
    assert measured.once("glm", "load", lambda: next(calls)) == "c"


def test_a_measurement_that_failed_is_tried_again() -> None:
    measured = Measured()
    try:
        measured.once("glm", "walk", lambda: 1 // 0)
    except ZeroDivisionError:
        assert measured.once("glm", "walk", lambda: 7) == 7


def test_none_is_a_value_of_a_measurement() -> None:
    measured, calls = Measured(), iter([None, 7])
    assert [measured.once("glm", "walk", lambda: next(calls)) for _ in range(2)] == [None, None]


def test_a_cleared_measurement_is_repeated() -> None:
    measured = Measured()
    measured.once("glm", "walk", lambda: 1)
    measured.clear()
    assert measured.once("glm", "walk", lambda: 2) == 2
