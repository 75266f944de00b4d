"""A ladder is climbed to where the server stops coming back, and a hang is seen."""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.long_context.client import Ladder, LadderTarget
from pytest_vllm_gates.long_context.prompts import metrics
from pytest_vllm_gates.long_context.types import Rung
from pytest_vllm_gates.process.process import resident_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONTEXT = 100
TEXT = range(CONTEXT)
TOO_LONG = (("one too many", CONTEXT, 1), ("far too long", 4 * CONTEXT, 1))


class Server(ThreadingHTTPServer):
    """Takes prompts of token ids; from `hangs_from` tokens on it never answers."""

    daemon_threads = True

    def __init__(self, hangs_from: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.hangs_from = hangs_from
        self.over = threading.Event()
        self.asked: list[dict[str, Any]] = []
        self.running = 0
        self.generated = 0

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(f"http://127.0.0.1:{self.server_port}/v1", "alias")


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name above
        """Say nothing."""

    def do_GET(self) -> None:
        lines = [
            f"vllm:num_requests_running {self.server.running}",
            f"vllm:generation_tokens_total {self.server.generated}",
            "vllm:kv_cache_usage_perc 0.0",
        ]
        self._reply("\n".join(lines))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        length, count = len(body["prompt"]), body["max_tokens"]
        if length + count > CONTEXT:
            self._reply(json.dumps({"error": {"message": f"the limit is {CONTEXT}"}}), 400)
            return
        if length >= self.server.hangs_from:
            self.server.running += 1
            self.server.over.wait(30)
        self.server.generated += count
        choice = {
            "finish_reason": "length",
            "token_ids": [7] * count,
            "logprobs": {"token_logprobs": [-0.5] * count},
        }
        self._reply(json.dumps({"choices": [choice], "usage": {"prompt_tokens": length}}))

    def _reply(self, text: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    found = Server(getattr(request, "param", CONTEXT + 1))
    threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
    yield found
    found.over.set()
    found.shutdown()
    found.server_close()


def paris() -> Completion:
    return Completion(content="Paris.")


def test_every_rung_is_asked_and_what_is_too_long_after_it(server: Server) -> None:
    rungs = [Rung(40, 4), Rung(40, 4, prefix="warm"), Rung(96, 4, at_once=3)]
    with metrics(server.endpoint) as told:
        climb = LadderTarget(server.endpoint, told, paris, 20.0).climb(
            Ladder(TEXT, rungs, TOO_LONG), CONTEXT
        )
    assert [len(rung.replies) for rung in climb.rungs] == [1, 1, 3]
    assert all(rung.survived for rung in climb.rungs)
    first = climb.rungs[0].replies[0]
    assert (first.prompt_tokens, first.output, first.finish_reason) == (40, (7,) * 4, "length")
    assert [refusal.status for refusal in climb.refusals] == [400, 400]
    assert climb.not_asked == ()
    assert [len(body["prompt"]) for body in server.asked] == [40, 40, 96, 96, 96, 100, 400]


def test_a_warm_prefix_keeps_its_salt_and_a_cold_one_has_none_but_its_own(server: Server) -> None:
    rungs = [Rung(40, 4), Rung(40, 4, prefix="warm"), Rung(40, 4, at_once=2)]
    LadderTarget(server.endpoint, None, paris, 20.0).climb(Ladder(TEXT, rungs, ()), CONTEXT)
    salts = [body["cache_salt"] for body in server.asked]
    assert salts[0] == salts[1]
    assert len(set(salts)) == 3


@pytest.mark.parametrize("server", [90], indirect=True)
def test_a_hang_ends_the_climb_and_leaves_the_stacks(server: Server, tmp_path: Path) -> None:
    rungs = [Rung(40, 4), Rung(96, 4), Rung(96, 4, at_once=3)]
    with metrics(server.endpoint) as told:
        climber = LadderTarget(
            server.endpoint, told, paris, 0.5, lambda: [os.getpid()], tmp_path / "logs"
        )
        climb = climber.climb(Ladder(TEXT, rungs, TOO_LONG), CONTEXT)
    hang = climb.rungs[-1].hang
    assert hang is not None
    assert 0.4 < hang.silent_s < 20
    assert (hang.running, hang.health) == (1, "200")
    assert hang.stacks is not None
    assert f"process {os.getpid()}" in hang.stacks.read_text()
    assert climb.rungs[-1].replies[0].error.startswith("no answer")
    assert climb.not_asked == (rungs[2].name, "one too many", "far too long")


def test_a_server_that_is_gone_ends_the_climb() -> None:
    gone = Endpoint("http://127.0.0.1:9/v1", "alias")
    climber = LadderTarget(gone, None, lambda: Completion(error="no answer: ConnectError"), 20.0)
    climb = climber.climb(Ladder(TEXT, [Rung(40, 4), Rung(96, 4)], TOO_LONG), CONTEXT)
    assert len(climb.rungs) == 1
    assert "ConnectError" in climb.rungs[0].replies[0].error
    assert not climb.rungs[0].survived


def test_the_memory_of_processes_is_counted() -> None:
    own = resident_bytes([os.getpid()])
    assert own is not None
    assert own > 2**20
    assert resident_bytes([]) is None
