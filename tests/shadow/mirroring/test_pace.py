"""Long answers are read at a limited rate together; ordinary answers never wait."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.shadow.mirroring.pace import FREE_BYTES, ReadPace

RATE = 1000.0


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pace(clock: Clock) -> ReadPace:
    return ReadPace(RATE, clock)


def test_an_ordinary_answer_never_waits(pace: ReadPace) -> None:
    for _ in range(100):
        assert pace.wait_s(FREE_BYTES, FREE_BYTES) == 0


def test_a_long_answer_is_read_at_the_rate(pace: ReadPace, clock: Clock) -> None:
    begun_s = clock.now_s
    for _ in range(100):
        clock.now_s += pace.wait_s(FREE_BYTES + 1, 500)
    assert clock.now_s - begun_s == pytest.approx(100 * 500 / RATE - 1, abs=0.5)


def test_long_answers_share_the_rate(pace: ReadPace) -> None:
    waits = [pace.wait_s(FREE_BYTES + 1, 500) for _ in range(6)]
    assert waits == pytest.approx([0, 0, 0.5, 1, 1.5, 2])


def test_only_a_second_of_silence_is_made_up_for(pace: ReadPace, clock: Clock) -> None:
    clock.now_s += 3600
    assert pace.wait_s(FREE_BYTES + 1, 1000) == 0
    assert pace.wait_s(FREE_BYTES + 1, 1000) == pytest.approx(1)


def test_an_ordinary_answer_does_not_wait_beside_a_flood(pace: ReadPace) -> None:
    for _ in range(10):
        pace.wait_s(FREE_BYTES + 1, 10_000)
    assert pace.wait_s(2_000, 2_000) == 0
