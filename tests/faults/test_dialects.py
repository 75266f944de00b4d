"""A server whose APIs disagree turns the dialects gate's own check red, and no other gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sweeps import named, sweep

from faults import dialect_answers, dialect_streams, dialects
from faults.conversations import SHORT
from faults.exchange import EVENTS, JSON
from faults.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults.conftest import Run
    from faults.exchange import Exchange
    from faults.fault import Fault
    from faults.upstream import Upstream

pytestmark = pytest.mark.real

# These modules add their faults to the list of `dialects`.
MODULES = (dialect_answers, dialect_streams)
# All faults alter routes that only this gate uses; one more gate is run.
GATES = ("-m", "boot or dialects")


@pytest.mark.parametrize(
    "fault",
    sweep(
        dialects.FAULTS.all,
        lambda fault: fault.name,
        named("loses_reasoning", "never_completes", "gives_all_blocks_one_index"),
    ),
)
def test_turns_its_check_red(fault: Fault, upstream: Upstream, run: Run) -> None:
    with Proxy(upstream, request=fault.request, reply=fault.reply) as proxy:
        judged_run = run("--base-url", proxy.base_url, *SHORT, *GATES)
    assert judged_run.gates("FAIL") == {"dialects"}, judged_run.complaints
    failures = judged_run.failed("dialects")
    assert fault.says in failures.get(fault.check, ""), failures
    assert judged_run.verdict["promotion"] == "REJECT"
    assert judged_run.status == 1


def keeps_alive(exchange: Exchange) -> None:
    """Pings come anywhere in a stream of Messages, and comments in any."""
    if exchange.kind == EVENTS:
        exchange.frame = ": ping\n\ndata: {}\n\n".format
        exchange.named = False
    if exchange.path == dialects.MESSAGES and exchange.streamed:
        exchange.frame = "data: {}\n\n".format
        exchange.named = True
        exchange.events = [each for event in exchange.events for each in (event, {"type": "ping"})][
            :-1
        ]


def has_fields_nobody_knows(exchange: Exchange) -> None:
    """The next release adds some."""
    for event in exchange.events:
        event["novelty"] = {"of": ["the", "next"]}


def has_messages_and_chats_alone(exchange: Exchange) -> None:
    """A server may offer any of these APIs, or none."""
    if exchange.path == "/openapi.json":
        paths = exchange.events[0]["paths"]
        for path in [*paths]:
            if "responses" in path or path == dialects.COMPLETIONS:
                del paths[path]


def has_no_list_of_routes(exchange: Exchange) -> None:
    """A gateway has neither `/openapi.json` nor Anthropic's API."""
    if exchange.path in {"/openapi.json", dialects.MESSAGES, dialects.COUNT}:
        exchange.status = 404
        exchange.events = [{"detail": "Not Found"}]
        exchange.kind = JSON


def counts_less_than_it_might(exchange: Exchange) -> None:
    """Details of the tokens may be there or not."""
    for event in exchange.events:
        usage = event.get("usage") or (event.get("response") or {}).get("usage") or {}
        for details in usage.values():
            if isinstance(details, dict):
                details.pop("tool_output_tokens", None)


@pytest.mark.parametrize(
    "change",
    [
        keeps_alive,
        pytest.param(has_fields_nobody_knows, marks=pytest.mark.slow),
        pytest.param(has_messages_and_chats_alone, marks=pytest.mark.slow),
        pytest.param(has_no_list_of_routes, marks=pytest.mark.slow),
        pytest.param(counts_less_than_it_might, marks=pytest.mark.slow),
    ],
)
def test_turns_nothing_red(
    change: Callable[[Exchange], None], upstream: Upstream, run: Run
) -> None:
    with Proxy(upstream, reply=change) as proxy:
        judged_run = run("--base-url", proxy.base_url, *SHORT, *GATES)
    assert judged_run.complaints == []
    assert judged_run.gates("PASS") | judged_run.gates("KNOWN") == {"boot", "dialects"}
    assert judged_run.status == 0
