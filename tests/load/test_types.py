"""When a request counts as dispatched."""

from __future__ import annotations

from dataclasses import replace

from pytest_vllm_gates.load.types import RawResponse

RAW = RawResponse("one", intended_s=1.0, sent_s=1.5, ended_s=2.0, answer=b"", arrivals=())


def test_dispatch_time_is_when_the_client_started_the_request() -> None:
    assert RAW.dispatched_s == 1.5
    assert replace(RAW, begun_s=1.25).dispatched_s == 1.25
    assert replace(RAW, begun_s=0.0).dispatched_s == 0.0
    assert replace(RAW, sent_s=None).dispatched_s is None
