"""When a request counts as dispatched; what of a load becomes evidence."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from load.test_checks import IDLE, PARIS, phase
from pytest_vllm_gates.load.types import LOOKS_KEPT, LoadResult, RawResponse

RAW = RawResponse("one", intended_s=1.0, sent_s=1.5, ended_s=2.0, answer=b"", arrivals=())


def test_dispatch_time_is_when_the_client_started_the_request() -> None:
    assert RAW.dispatched_s == 1.5
    assert replace(RAW, begun_s=1.25).dispatched_s == 1.25
    assert replace(RAW, begun_s=0.0).dispatched_s == 0.0
    assert replace(RAW, sent_s=None).dispatched_s is None


def loaded(looks: int) -> list[list[float]]:
    seen = tuple(
        replace(IDLE, at=50.0 + at / 10, running=at, waiting=1, kv_usage=1 / 3)
        for at in range(looks)
    )
    return LoadResult(PARIS, (phase(seen=seen),), (), None).looks()["streams"]


def test_looks_begin_at_zero_seconds() -> None:
    assert loaded(2) == [[0.0, 0, 1, 0.3333], [0.1, 1, 1, 0.3333]]
    assert LoadResult(PARIS, (phase(seen=()),), (), None).looks() == {}


@pytest.mark.parametrize("looks", [LOOKS_KEPT - 1, LOOKS_KEPT, LOOKS_KEPT + 1, 5000])
def test_of_many_looks_some_are_kept_evenly(looks: int) -> None:
    kept = loaded(looks)
    assert LOOKS_KEPT / 2 <= len(kept) <= LOOKS_KEPT
    steps = {round(later[0] - earlier[0], 1) for earlier, later in itertools.pairwise(kept)}
    assert len(steps) == 1
