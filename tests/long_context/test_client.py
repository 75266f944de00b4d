"""A ladder is climbed to where the server stops coming back, and a hang is seen."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.scripted import ScriptedServer, Text

from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.long_context.client import Ladder, LadderTarget
from pytest_vllm_gates.long_context.prompts import metrics
from pytest_vllm_gates.long_context.types import Rung
from pytest_vllm_gates.process.process import resident_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from servers.scripted import ServerAnswer

CONTEXT = 100
TEXT = range(CONTEXT)
TOO_LONG = (("one too many", CONTEXT, 1), ("far too long", 4 * CONTEXT, 1))


class ContextServer(ScriptedServer):
    """Takes prompts of token ids; from `hangs_from` tokens on it never answers."""

    def __init__(self, hangs_from: int) -> None:
        super().__init__(self._metrics_or_completion)
        self.hangs_from = hangs_from
        self.running = 0
        self.generated = 0

    @property
    def completions_seen(self) -> list[dict[str, Any]]:
        return [request.body for request in self.requests_seen if request.method == "POST"]

    def _metrics_or_completion(self, _: str, body: Any) -> ServerAnswer:
        if body is None:
            lines = [
                f"vllm:num_requests_running {self.running}",
                f"vllm:generation_tokens_total {self.generated}",
                "vllm:kv_cache_usage_perc 0.0",
            ]
            return 200, Text("\n".join(lines))
        length, count = len(body["prompt"]), body["max_tokens"]
        if length + count > CONTEXT:
            return 400, {"error": {"message": f"the limit is {CONTEXT}"}}
        if length >= self.hangs_from:
            self.running += 1
            self.closing.wait(30)
        self.generated += count
        choice = {
            "finish_reason": "length",
            "token_ids": [7] * count,
            "logprobs": {"token_logprobs": [-0.5] * count},
        }
        return 200, {"choices": [choice], "usage": {"prompt_tokens": length}}


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[ContextServer]:
    with running(ContextServer(getattr(request, "param", CONTEXT + 1))) as server:
        yield server


def paris() -> Completion:
    return Completion(content="Paris.")


def test_every_rung_is_sent_then_the_too_long_prompts(server: ContextServer) -> None:
    rungs = [Rung(40, 4), Rung(40, 4, prefix="warm"), Rung(96, 4, at_once=3)]
    with metrics(server.endpoint) as server_metrics:
        result = LadderTarget(server.endpoint, server_metrics, paris, 20.0).climb(
            Ladder(TEXT, rungs, TOO_LONG), CONTEXT
        )
    assert [len(rung.replies) for rung in result.rungs] == [1, 1, 3]
    assert all(rung.survived for rung in result.rungs)
    first = result.rungs[0].replies[0]
    assert (first.prompt_tokens, first.output, first.finish_reason) == (40, (7,) * 4, "length")
    assert [refusal.status for refusal in result.refusals] == [400, 400]
    assert result.not_asked == ()
    assert [len(body["prompt"]) for body in server.completions_seen] == [
        40,
        40,
        96,
        96,
        96,
        100,
        400,
    ]


class OneAfterTheOtherServer(ContextServer):
    """Answers each prompt a quarter of a second after the one before."""

    def _metrics_or_completion(self, path: str, body: Any) -> ServerAnswer:
        if body is not None:
            self.closing.wait(0.25 * len(self.completions_seen))
        return super()._metrics_or_completion(path, body)


def test_a_rung_ends_with_its_last_answer() -> None:
    with running(OneAfterTheOtherServer(CONTEXT + 1)) as server:
        result = LadderTarget(server.endpoint, None, paris, 20.0).climb(
            Ladder(TEXT, [Rung(40, 4, at_once=3)], ()), CONTEXT
        )
    assert [reply.error for reply in result.rungs[0].replies] == [""] * 3


def test_a_warm_prefix_keeps_its_cache_salt(
    server: ContextServer,
) -> None:
    rungs = [Rung(40, 4), Rung(40, 4, prefix="warm"), Rung(40, 4, at_once=2)]
    LadderTarget(server.endpoint, None, paris, 20.0).climb(Ladder(TEXT, rungs, ()), CONTEXT)
    salts = [body["cache_salt"] for body in server.completions_seen]
    assert salts[0] == salts[1]
    assert len(set(salts)) == 3


@pytest.mark.parametrize("server", [90], indirect=True)
def test_a_hang_ends_the_climb_and_leaves_the_stacks(server: ContextServer, tmp_path: Path) -> None:
    rungs = [Rung(40, 4), Rung(96, 4), Rung(96, 4, at_once=3)]
    with metrics(server.endpoint) as server_metrics:
        climber = LadderTarget(
            server.endpoint, server_metrics, paris, 0.5, lambda: [os.getpid()], tmp_path / "logs"
        )
        result = climber.climb(Ladder(TEXT, rungs, TOO_LONG), CONTEXT)
    hang = result.rungs[-1].hang
    assert hang is not None
    assert 0.4 < hang.silent_s < 20
    assert (hang.running, hang.health) == (1, "200")
    assert hang.stacks is not None
    assert f"process {os.getpid()}" in hang.stacks.read_text()
    assert result.rungs[-1].replies[0].error.startswith("no answer")
    assert result.not_asked == (rungs[2].name, "one too many", "far too long")


def test_a_server_that_is_gone_ends_the_climb() -> None:
    dead_endpoint = Endpoint("http://127.0.0.1:9/v1", "alias")
    target = LadderTarget(
        dead_endpoint, None, lambda: Completion(error="no answer: ConnectError"), 20.0
    )
    result = target.climb(Ladder(TEXT, [Rung(40, 4), Rung(96, 4)], TOO_LONG), CONTEXT)
    assert len(result.rungs) == 1
    assert "ConnectError" in result.rungs[0].replies[0].error
    assert not result.rungs[0].survived


def test_the_memory_of_processes_is_counted() -> None:
    own = resident_bytes([os.getpid()])
    assert own is not None
    assert own > 2**20
    assert resident_bytes([]) is None
