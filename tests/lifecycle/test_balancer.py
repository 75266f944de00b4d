"""Requests go to the replica with the fewest; a removed one finishes its requests first."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.lifecycle import balancer
from pytest_vllm_gates.lifecycle.balancer import BalancedTraffic, Balancer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


def answering(name: str) -> Completion:
    return Completion(content=name)


def test_both_replicas_get_requests() -> None:
    both = Balancer()
    both.put_in("a", lambda _: answering("a"))
    both.put_in("b", lambda _: answering("b"))
    replicas = [done.replica for number in range(4) if (done := both.send(number, 0))]
    assert sorted(replicas) == ["a", "a", "b", "b"]


@contextlib.contextmanager
def busy(one: Balancer) -> Iterator[threading.Event]:
    """Add a replica that has one request, until the event is set."""
    begun, free = threading.Event(), threading.Event()

    def answer(_: int) -> Completion:
        begun.set()
        free.wait(10)
        return answering("a")

    one.put_in("a", answer)
    held = threading.Thread(target=one.send, args=(0, 0))
    held.start()
    assert begun.wait(10)
    yield free
    free.set()
    held.join()


def test_a_replica_that_is_busy_gets_fewer() -> None:
    both = Balancer()
    with busy(both):
        both.put_in("b", lambda _: answering("b"))
        replicas = [done.replica for number in range(4) if (done := both.send(number, 0))]
    assert replicas == ["b"] * 4


def test_a_removed_replica_finishes_its_requests() -> None:
    one = Balancer()
    with busy(one) as free:
        threading.Timer(0.1, free.set).start()
        assert one.take_out("a", 10) == 0
        assert free.is_set()


def test_a_removed_replica_may_not_finish() -> None:
    one = Balancer()
    with busy(one):
        assert one.take_out("a", 0.05) == 1


def test_without_a_replica_a_request_is_not_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(balancer, "LONGEST_WAIT_S", 0.01)
    assert Balancer().send(0, 0) is None


def test_clients_send_until_they_are_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(balancer, "PAUSE_S", 0.001)
    one = Balancer()
    one.put_in("a", lambda number: answering(str(number)))
    with BalancedTraffic(one, questions=3) as traffic:
        traffic.wait_for(20, 10)
    assert len(traffic.requests) >= 20
    assert traffic.unanswered == 0
    assert all(each.answer.content == str(each.number % 3) for each in traffic.requests)
    numbers = [each.number for each in traffic.requests]
    assert len({*numbers}) == len(numbers)
