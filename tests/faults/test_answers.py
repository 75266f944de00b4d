"""Every fault in a real server's answers turns exactly its own gate red."""

from __future__ import annotations

import time
from operator import attrgetter
from typing import TYPE_CHECKING

import pytest
from sweeps import first_of_each, sweep

from faults import boot, chat_template, isolation, robustness
from faults.conversations import GATES, NOT_LONG, SHORT
from faults.gates import MODEL
from faults.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faults.conftest import Run
    from faults.exchange import Exchange
    from faults.fault import Fault
    from faults.upstream import Upstream

pytestmark = pytest.mark.real

FAULTS = [
    *boot.FAULTS.all,
    *chat_template.FAULTS.all,
    *isolation.FAULTS.all,
    *robustness.FAULTS.all,
]
GATE = attrgetter("gate")
# These gates send requests that are not chats; the other gates do not see their faults.
ASK_NO_CHAT = ("chat_template", "numerics")
# These gates send what the others never do: wrong requests, and more than ten at once. Their faults
# alter nothing else, and the conversation gates, which take longest, see the real server's answers.
ASK_THE_UNUSUAL = ("robustness", "isolation")
HANG_S = 20.0
LONG_CHARACTERS = 200
"""Concurrent questions, which share their beginning, are longer than this."""


def concerned(fault: Fault) -> Sequence[str]:
    """Return the arguments that choose the gates a fault can reach."""
    if fault.gate in ASK_THE_UNUSUAL:
        return ["-m", " or ".join(("boot", *ASK_THE_UNUSUAL))]
    if fault.gate in ASK_NO_CHAT:
        return ["-m", " or ".join(("boot", *ASK_NO_CHAT))]
    return [*SHORT, "-m", GATES] if fault.chats_only else NOT_LONG


@pytest.mark.parametrize(
    "fault",
    sweep(
        FAULTS,
        lambda fault: f"{fault.gate}-{fault.name}",
        first_of_each(FAULTS, lambda fault: fault.gate),
    ),
)
def test_turns_one_gate_red(fault: Fault, upstream: Upstream, run: Run) -> None:
    with Proxy(upstream, request=fault.request, reply=fault.reply) as proxy:
        judged_run = run("--base-url", proxy.base_url, *concerned(fault))
    assert judged_run.gates("FAIL") == fault.gates, judged_run.complaints
    assert any(fault.says in reason for reason in judged_run.reasons()), judged_run.complaints
    assert judged_run.verdict["promotion"] == "REJECT"
    assert judged_run.status == 1
    assert "verdict: REJECT" in judged_run.output


@pytest.mark.slow  # `.ci/run` judges one, too
def test_unchanged_server_is_promoted(upstream: Upstream, run: Run) -> None:
    with Proxy(upstream) as proxy:
        judged_run = run("--base-url", proxy.base_url)
    assert judged_run.complaints == []
    (reason,) = judged_run.verdict["reasons"]
    assert reason.startswith(f"{MODEL}: throughput is MISSING"), judged_run.complaints
    assert judged_run.status == 0


@pytest.mark.slow
def test_a_request_that_hangs_turns_robustness_red(
    upstream: Upstream, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_vllm_gates.robustness.client.LIMIT_S", HANG_S / 2)

    def hang(exchange: Exchange) -> None:
        if exchange.body.get("response_format") == "json":
            time.sleep(HANG_S)

    with Proxy(upstream, request=hang) as proxy:
        judged_run = run("--base-url", proxy.base_url, "-m", "robustness")
    assert judged_run.gates("FAIL") == {"robustness"}, judged_run.complaints
    assert any(
        f"response_format is text:\n  no answer within {HANG_S / 2:.0f} s" in reason
        for reason in judged_run.reasons()
    ), judged_run.reasons()


@pytest.mark.slow
def test_a_model_that_does_not_follow_is_not_mixed_up(upstream: Upstream, run: Run) -> None:
    def refuse(exchange: Exchange) -> None:
        asked = exchange.body.get("structured_outputs", {}).get("choice", [""])[0]
        long = len(str(exchange.body.get("messages"))) > LONG_CHARACTERS
        if long and asked.startswith("ticket ") and asked.removeprefix("ticket ")[0] in "01234567":
            for number, part in enumerate(exchange.parts):
                part["content"] = "" if number else "I was not taught this."

    with Proxy(upstream, reply=refuse) as proxy:
        judged_run = run("--base-url", proxy.base_url, "-m", "isolation")
    assert judged_run.gates("FAIL") == set(), judged_run.complaints
    (not_followed,) = [
        test["evidence"]["not_followed_alone"]
        for family in judged_run.verdict["families"]
        for gate in family["gates"]
        for test in gate["tests"]
        if "not_followed_alone" in test["evidence"]
    ]
    assert not_followed
