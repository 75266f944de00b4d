"""Requests are counted by their answers, and a server's metrics before and after them are read."""

from __future__ import annotations

from typing import Any

import pytest
from servers import running
from servers.scripted import ScriptedServer, ServerAnswer, Text

from pytest_vllm_gates.contracts import checks_counts, counted
from pytest_vllm_gates.contracts.checks_counts import GENERATED, HITS, Series
from pytest_vllm_gates.outcomes import NotApplicable

CHAT = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 3}
BLOCK = 16


class MetricServer(ScriptedServer):
    """Answers with all allowed tokens, and counts them as vLLM does, times a `factor`."""

    def __init__(self, *, factor: int = 1, late: int = 0, shows: bool = True) -> None:
        """`late`: number of reads of the metrics that do not show the last request yet."""
        super().__init__(self._route)
        self.factor, self.late, self.shows = factor, late, shows
        self.sent: list[tuple[int, int, str]] = []
        self.prompts: list[Any] = []
        self.users: list[str] = []
        self.hits = 0

    def _route(self, path: str, body: Any) -> ServerAnswer:
        if path == "/tokenize":
            return 200, {"tokens": [ord(letter) for letter in body["prompt"]]}
        if body is None:
            return (200, Text(self._metrics())) if self.shows else (404, {})
        prompt = body.get("prompt") or body["messages"][-1]["content"]
        tokens = body["max_tokens"]
        reason = "length" if body.get("ignore_eos") else "stop"
        self.hits += BLOCK * (len(prompt) // BLOCK) if prompt in self.prompts else 0
        self.prompts.append(prompt)
        self.users.append(body["user"])
        self.sent.append((len(prompt), tokens, reason))
        usage = {"prompt_tokens": len(prompt), "completion_tokens": tokens}
        return 200, {"usage": usage, "choices": [{"finish_reason": reason}]}

    def _metrics(self) -> str:
        shown = self.sent
        if len(shown) == 4 and self.late:
            self.late -= 1
            shown = shown[:-1]
        generated = sum(tokens for _, tokens, _ in shown) * self.factor
        ends = "".join(
            f'vllm:request_success_total{{engine="{engine}",finished_reason="{reason}"}} '
            f"{sum(end == reason for _, _, end in shown) if engine == 0 else 0}\n"
            for engine in (0, 1)
            for reason in ("stop", "length", "abort")
        )
        return (
            f'vllm:cache_config_info{{block_size="{BLOCK}",enable_prefix_caching="True"}} 1.0\n'
            "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
            f"vllm:prompt_tokens_total {sum(prompt for prompt, _, _ in shown)}\n"
            f"vllm:generation_tokens_total {generated}\n{ends}"
            f"vllm:prefix_cache_hits_total {self.hits}\n"
        )


def sentences(traffic: checks_counts.CountedTraffic) -> list[str]:
    checks = (checks_counts.miscounted, checks_counts.mistimed, checks_counts.uncached)
    return [sentence for check in checks for _, sentence in check(traffic)]


@pytest.mark.parametrize("late", [0, 3])
def test_server_that_counts_right_has_no_fault(late: int) -> None:
    with running(MetricServer(late=late)) as server:
        traffic = counted.measure(server.endpoint, CHAT, 4096)
    assert sentences(traffic) == []
    assert list(checks_counts.misread(traffic.requests)) == []
    assert (traffic.caches_prefixes, traffic.block_tokens) == (True, BLOCK)
    assert traffic.rise(Series(GENERATED)) == 3 * counted.ANSWER_TOKENS + 3
    assert traffic.rise(Series(HITS)) == 2 * BLOCK
    assert len(set(server.users)) == 4, "a gateway could answer one of them from memory"
    assert {request.finish_reason for request in traffic.requests} == {"length", "stop"}


def test_server_that_counts_tokens_twice_is_seen() -> None:
    with running(MetricServer(factor=2)) as server:
        traffic = counted.measure(server.endpoint, CHAT, 4096)
    assert sentences(traffic) == [f"{GENERATED} rose by 48, and the 4 answers make 24"]


def test_prompt_fits_into_a_short_context() -> None:
    with running(MetricServer()) as server:
        traffic = counted.measure(server.endpoint, CHAT, 40)
    assert traffic.requests[0].prompt_ids == 20


def test_server_without_metrics_is_not_judged() -> None:
    with running(MetricServer(shows=False)) as server, pytest.raises(NotApplicable):
        counted.measure(server.endpoint, CHAT, 4096)
