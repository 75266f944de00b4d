"""A server is suspended in every way; its answers meanwhile and afterwards are judged."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from servers import running

from lifecycle.holding_server import HoldingServer
from pytest_vllm_gates.client.completion import CompletionClient
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.lifecycle import checks_of_holds, holds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BODY = {"messages": [{"role": "user", "content": "France?"}]}
SLEEP, PAUSE = holds.HOLDS[2], holds.HOLDS[-1]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Endpoint]]:
    """Start a server that is suspended in the given way; it ends with the test."""
    monkeypatch.setattr(holds, "HELD_S", 0.3)
    with contextlib.ExitStack() as stack:

        def start(way: str) -> Endpoint:
            return Endpoint(stack.enter_context(running(HoldingServer(way))).base_url, "m")

        yield start


def holder_of(endpoint: Endpoint) -> holds.Holder:
    return holds.Holder(endpoint, [BODY], BODY, 60.0)


@pytest.mark.parametrize(
    ("way", "answers", "told"),
    [
        ("right", "", ""),
        ("forgets", "alone 'Paris.', now 'Rome.'", ""),
        ("early", "", "a request is answered while suspended"),
        ("stuck", "it does not resume: /wake_up: 500", ""),
    ],
)
def test_faults_of_a_server_that_sleeps_are_distinguished(
    way: str, answers: str, told: str, served: Callable[[str], Endpoint]
) -> None:
    endpoint = served(way)
    first = [("France?", CompletionClient(endpoint, 60.0).ask(BODY))]
    held = holder_of(endpoint).hold(SLEEP)
    assert held.refused == ""
    found, cases = checks_of_holds.answers(first, [held], invariant=True)
    assert len(cases) >= 2
    assert bool(found) is bool(answers)
    assert all(answers in finding.says for finding in found)
    found, cases = checks_of_holds.told([held])
    assert len(cases) == 1
    assert [finding.says for finding in found] == [told] * bool(told)


def test_a_server_without_the_routes_is_left_alone(served: Callable[[str], Endpoint]) -> None:
    holder = holder_of(served("old"))
    refused = [holder.hold(hold).refused for hold in holds.HOLDS]
    assert all("404" in words for words in refused)


def test_weights_are_not_lost_where_they_cannot_be_read_again(
    served: Callable[[str], Endpoint],
) -> None:
    holder = holder_of(served("blank"))
    refused = {hold.name: holder.hold(hold).refused for hold in holds.HOLDS}
    without = [name for name, words in refused.items() if words]
    assert without == ["weights read again", "sleep, level 2"]


@pytest.mark.parametrize("number", [-3, -2, -1], ids=["abort", "wait", "keep"])
def test_answers_under_way_are_watched_over_a_pause(
    number: int, served: Callable[[str], Endpoint]
) -> None:
    holder = holder_of(served("right"))
    over = holder.over(holds.HOLDS[number], holder.whole())
    assert over
    assert checks_of_holds.open_answers([over], invariant=True)[0] == []
    finish = {"pause, abort": "abort"}.get(over.name, "length")
    assert over.ended.finish_reason == finish
