"""Every answer has a budget of bytes, time, events and depth; a server has three chances."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.client import bounds, http
from pytest_vllm_gates.client.bounds import (
    DEFAULT,
    MIB,
    STRIKES,
    Bounds,
    Budget,
    LimitExceeded,
    Strikes,
)
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.options import defaults

if TYPE_CHECKING:
    from conftest import Fakes

SMALL = Bounds(body_bytes=1000, stream_bytes=3000, body_s=20.0, stream_s=100.0)
REQUEST = json.dumps({"max_tokens": 4, "messages": [{"content": '"max_tokens": 9999'}]}).encode()
EVENT = b'data: {"a": 1}\n\n'


class Clock:
    """Shows the time that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def stream(clock: Clock, wait_s: float | None = 5.0, request: bytes = REQUEST) -> Budget:
    budget = Budget(request, SMALL, wait_s, clock)
    budget.received(b"HTTP/1.1 200 OK\r\n\r\n")
    budget.head_ended(stream=True)
    return budget


def whole(clock: Clock, wait_s: float | None = 5.0) -> Budget:
    budget = Budget(b"", SMALL, wait_s, clock)
    budget.received(b"HTTP/1.1 200 OK\r\n\r\n")
    budget.head_ended(stream=False)
    return budget


def test_options_have_the_defaults_of_the_bounds() -> None:
    assert Bounds.of(defaults.MAX_RESPONSE_MIB, defaults.RESPONSE_TIMEOUT_S) == DEFAULT
    assert Bounds.of(2, 12.0) == Bounds(2 * MIB, 4 * MIB, 12.0, 12.0)


def test_first_byte_may_take_as_long_as_the_request_waits(clock: Clock) -> None:
    budget = Budget(b"", SMALL, 300.0, clock)
    clock.now = 299.0
    assert budget.timeout(300.0) == 300.0


@pytest.mark.parametrize(("wait_s", "limit_s"), [(1.0, 10), (5.0, 15), (300.0, 20), (None, 20)])
def test_dripping_headers_end(clock: Clock, wait_s: float | None, limit_s: float) -> None:
    budget = Budget(b"", SMALL, wait_s, clock)
    budget.received(b"H")
    clock.now = limit_s - 0.5
    assert budget.timeout(None) == 0.5
    clock.now = limit_s
    with pytest.raises(LimitExceeded, match=f"headers did not end in {limit_s} s"):
        budget.timeout(wait_s)


def test_headers_without_end_are_refused(clock: Clock) -> None:
    budget = Budget(b"", SMALL, 5.0, clock)
    for _ in range(2):
        budget.received(b"X: y\r\n" * 16384)
    with pytest.raises(LimitExceeded, match="headers take more than 256 KiB"):
        budget.received(b"X: y\r\n" * 16384)


def test_dripping_body_ends(clock: Clock) -> None:
    budget = whole(clock)
    budget.piece(b"a")
    clock.now = 15.0
    with pytest.raises(LimitExceeded, match="body did not end in 15 s"):
        budget.piece(b"a")


def test_large_body_is_refused_with_the_option(clock: Clock) -> None:
    budget = Budget(b"", Bounds(body_bytes=MIB), 5.0, clock)
    budget.head_ended(stream=False)
    budget.piece(b"a" * MIB)
    with pytest.raises(LimitExceeded, match=r"larger than 1 MiB \(--max-response-mib sets"):
        budget.piece(b"a")


def test_stream_counts_the_memory_of_its_pieces(clock: Clock) -> None:
    budget = stream(clock)
    for _ in range(14):
        budget.piece(b":")
    with pytest.raises(LimitExceeded, match="stream is larger"):
        budget.piece(b":")


def test_events_beyond_the_requested_tokens_are_refused(clock: Clock) -> None:
    """Quotations in a prompt do not set limits: only the request's own key counts."""
    budget = Budget(REQUEST, Bounds(), 5.0, clock)
    budget.head_ended(stream=True)
    allowed = bounds.EVENTS_BESIDE + bounds.EVENTS_PER_TOKEN * 4
    for _ in range(allowed):
        budget.piece(EVENT)
    with pytest.raises(LimitExceeded, match=f"more than {allowed} events"):
        budget.piece(EVENT)


@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens", "max_output_tokens"])
def test_events_grow_with_tokens_and_choices(clock: Clock, key: str) -> None:
    budget = Budget(json.dumps({key: 1000, "n": 3}).encode(), Bounds(), 5.0, clock)
    budget.head_ended(stream=True)
    for _ in range(9000):
        budget.piece(EVENT)


def test_request_without_a_limit_has_no_limit_of_events(clock: Clock) -> None:
    budget = Budget(b'{"messages": []}', Bounds(), 5.0, clock)
    budget.head_ended(stream=True)
    for _ in range(20_000):
        budget.piece(EVENT)


def test_pings_do_not_count_as_progress(clock: Clock) -> None:
    budget = stream(clock)
    for clock.now in (2.0, 4.0, 5.9):
        budget.piece(b": ping\n\n")
    clock.now = 6.0
    with pytest.raises(LimitExceeded, match="no event for 5 s"):
        budget.piece(b": ping\n\n")


def test_events_cut_anywhere_are_progress(clock: Clock) -> None:
    budget = stream(clock)
    for clock.now in (4.0, 8.0, 12.0):
        budget.piece(b"\n\nda")
        budget.piece(b"ta: x")


def test_stream_ends_at_its_limit(clock: Clock) -> None:
    budget = stream(clock, None)
    clock.now = 100.0
    with pytest.raises(LimitExceeded, match=r"did not end in 100 s \(--response-timeout sets"):
        budget.piece(EVENT)


@pytest.mark.parametrize("form", ["whole", "stream"])
def test_deep_json_is_refused(clock: Clock, form: str) -> None:
    budget = Budget(b"", Bounds(), 5.0, clock)
    budget.head_ended(stream=form == "stream")
    for _ in range(7):
        budget.piece(b'{"a": [' * 10)
    with pytest.raises(LimitExceeded, match="nested deeper than 150 levels"):
        budget.piece(b'{"a": [' * 10)


def test_many_brackets_that_are_not_deep_are_taken(clock: Clock) -> None:
    budget = Budget(b"", Bounds(), 5.0, clock)
    budget.head_ended(stream=False)
    budget.piece(b"[" + b'{"a": []},' * 20_000 + b"{}]")
    budget = Budget(b"", Bounds(), 5.0, clock)
    budget.head_ended(stream=True)
    for _ in range(500):
        budget.piece(b'data: {"text": "[[[[{{{{ \\"["}\n\n')


def test_depth_is_that_of_one_event(clock: Clock) -> None:
    """Text that is not JSON has open brackets; they end with their event."""
    budget = Budget(b"", Bounds(), 5.0, clock)
    budget.head_ended(stream=True)
    for _ in range(500):
        budget.piece(b"data: [[not JSON\n\n")


def test_brackets_in_a_text_are_not_deep(clock: Clock) -> None:
    budget = Budget(b"", Bounds(), 5.0, clock)
    budget.head_ended(stream=True)
    budget.piece(b'data: {"text": "' + b"[" * 5000 + b'"}\n\n')


def test_server_has_three_chances() -> None:
    strikes = Strikes()
    for number in range(STRIKES):
        strikes.check()
        strikes.exceeded(f"limit {number}")
        strikes.answered()
    with pytest.raises(
        LimitExceeded, match=r"^no more requests are sent .* the last one: limit 2$"
    ):
        strikes.check()


def test_timeouts_count_until_the_server_answers() -> None:
    strikes = Strikes()
    for _ in range(2 * STRIKES):
        strikes.timed_out(60.0)
        strikes.answered()
    strikes.check()
    for _ in range(STRIKES):
        strikes.timed_out(60.0)
    with pytest.raises(LimitExceeded, match="it sent nothing for 60 s"):
        strikes.check()


def test_single_bytes_without_events_are_refused(clock: Clock) -> None:
    budget = Budget(REQUEST, Bounds(), 5.0, clock)
    budget.head_ended(stream=True)
    for _ in range(bounds.EVENT_PIECES):
        budget.piece(b":")
    with pytest.raises(LimitExceeded, match="10,000 pieces without an event"):
        budget.piece(b":")


def test_event_begins_the_count_of_pieces_anew(clock: Clock) -> None:
    budget = Budget(REQUEST, Bounds(), 5.0, clock)
    budget.head_ended(stream=True)
    for _ in range(2):
        for _ in range(bounds.EVENT_PIECES - 1):
            budget.piece(b":")
        budget.piece(EVENT)


def test_last_chance_is_reported_once(fakes: Fakes) -> None:
    """The refusal to send does not count as another answer over a limit."""
    strikes = Strikes()
    for _ in range(STRIKES):
        strikes.exceeded("too large")
    endpoint = replace(Endpoint(fakes().base_url, "m"), strikes=strikes)
    for _ in range(2):
        with http.client(endpoint) as client, pytest.raises(LimitExceeded) as refused:
            client.get("/health")
        assert str(refused.value).endswith("the last one: too large")
