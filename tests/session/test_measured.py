"""A measurement is shared by all tests, and one in progress is waited for."""

from __future__ import annotations

import threading

import pytest

from pytest_vllm_gates.outcomes import NotApplicable
from pytest_vllm_gates.session.run import Measured


def refuse() -> int:
    raise AssertionError("it is measured already")


def test_a_measurement_is_not_repeated() -> None:
    measured = Measured()
    assert measured.once("qwen3.5", "walk", lambda: 1) == 1
    assert measured.once("qwen3.5", "walk", refuse) == 1
    assert measured.once("glm", "walk", lambda: 2) == 2
    assert measured.has("glm", "walk")
    measured.clear()
    assert not measured.has("glm", "walk")
    assert measured.once("glm", "walk", lambda: 3) == 3


def test_a_begun_measurement_goes_on_and_is_waited_for() -> None:
    measured, goes_on = Measured(), threading.Event()

    def slow() -> int:
        goes_on.wait(10)
        return 4

    measured.begin("qwen3.5", "calls", slow)
    assert measured.has("qwen3.5", "calls")
    assert measured.once("qwen3.5", "walk", lambda: 1) == 1
    goes_on.set()
    assert measured.once("qwen3.5", "calls", refuse) == 4
    assert measured.once("qwen3.5", "calls", refuse) == 4


def test_a_begun_measurement_that_failed_raises_its_error() -> None:
    measured = Measured()

    def cannot() -> int:
        raise NotApplicable("it calls no tools")

    measured.begin("phi", "calls", cannot)
    with pytest.raises(NotApplicable, match="it calls no tools"):
        measured.once("phi", "calls", refuse)
    assert measured.once("phi", "calls", lambda: 5) == 5
