"""Every phase of a load is driven, others ask along, and what goes wrong ends it in time."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.drive import loading
from pytest_vllm_gates.drive.loading import Loader
from pytest_vllm_gates.drive.long_context import metrics
from pytest_vllm_gates.drive.measuring.measure import measure
from pytest_vllm_gates.facts import family as families
from pytest_vllm_gates.facts.isolation import Questions
from pytest_vllm_gates.facts.launch import Endpoint
from pytest_vllm_gates.facts.said import Said
from pytest_vllm_gates.facts.timing import Driven, Workers
from pytest_vllm_gates.facts.traffic import planned
from pytest_vllm_gates.judge import loaded as judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.facts.loaded import Loaded

TRAFFIC = planned(
    {
        "concurrency": 3, "requests": 9, "seconds": 5, "rate": 40.0,
        "prompt_tokens": [20, 30], "output_tokens": [3, 6], "shared_tokens": 8,
    }
)  # fmt: skip
QUESTIONS = Questions(answer_tokens=8, filler="Hm. ", questions=("Why?", "Who?"))


class Server(ThreadingHTTPServer):
    """Streams completions, answers chats, and counts; `hangs` completions it never answers."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, *, hangs: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.hangs = hangs
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.generated = self.read = 0

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(f"http://127.0.0.1:{self.server_port}/v1", "alias")


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name above
        """Say nothing."""

    def do_GET(self) -> None:
        self._reply(
            "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
            f"vllm:generation_tokens_total {self.server.generated}\n"
            f"vllm:prompt_tokens_total {self.server.read}\n"
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/completions":
            self._completion(body)
            return
        choice = (body.get("structured_outputs") or {}).get("choice")
        text = choice[0] if choice else body["messages"][-1]["content"]
        part = {"content": text}
        if body.get("stream"):
            event = {"choices": [{"delta": part, "finish_reason": "stop"}]}
            self._reply(f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n")
        else:
            whole = {"choices": [{"message": part, "finish_reason": "stop"}]}
            self._reply(json.dumps(whole))

    def _completion(self, body: dict[str, Any]) -> None:
        if self.server.hangs:
            self.server.over.wait(30)
        prompt, tokens = len(body["prompt"]), body["max_tokens"]
        events = [
            {
                "choices": [{"text": "x", "token_ids": [7]}],
                "usage": {"prompt_tokens": prompt, "completion_tokens": number},
            }
            for number in range(1, tokens + 1)
        ]
        with self.server.lock:
            self.server.generated += tokens
            self.server.read += prompt
        lines = [f"data: {json.dumps(event)}\n\n" for event in events]
        self._reply("".join([*lines, "data: [DONE]\n\n"]), "text/event-stream")

    def _reply(self, text: str, kind: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    found = Server(hangs=getattr(request, "param", False))
    threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
    yield found
    found.over.set()
    found.shutdown()
    found.server_close()


def load(endpoint: Endpoint, *, error: str = "", **more: Any) -> Loaded:
    given = {"stall_s": 20.0} | more
    with metrics(endpoint) as told:
        return Loader(
            endpoint=endpoint,
            family=families.load("qwen3.5", Path()),
            traffic=TRAFFIC,
            text=range(200),
            questions=QUESTIONS,
            metrics=told,
            canary=lambda: Said(content="Paris.", error=error),
            answer_s=10.0,
            **given,
        ).load()


def test_every_phase_is_driven_and_counted(server: Server) -> None:
    found = load(server.endpoint)
    assert [one.name for one in found.phases] == ["streams", "arrivals", "crowd"]
    assert [len(one.answers) for one in found.phases] == [9, 9, 9]
    assert judge.unanswered(found, TRAFFIC.limits)[0] == []
    findings, cases = judge.uncounted(found)
    assert (findings, [case.name for case in cases]) == ([], ["streams", "arrivals"])
    assert {ride.name for ride in found.rides} >= {"Why?", "ticket, whole"}
    assert judge.changed(found, invariant=True)[0] == []
    assert judge.crossed(found)[0] == []
    assert judge.unwell(found, invariant=True)[0] == []
    assert found.soak == ()


def test_no_request_goes_out_after_its_seconds(server: Server) -> None:
    slow = TRAFFIC.model_copy(update={"rate": 2.0, "seconds": 1.0})
    with metrics(server.endpoint) as told:
        loader = Loader(
            server.endpoint, families.load("qwen3.5", Path()), slow, range(200), QUESTIONS, told,
            lambda: Said(content="Paris."), 20.0, 10.0,
        )  # fmt: skip
        found = loader.load()
    assert len(found.phases[1].answers) <= 2


@pytest.mark.parametrize("server", [True], indirect=True)
def test_a_server_that_hangs_ends_the_load(server: Server) -> None:
    found = load(server.endpoint, stall_s=0.5)
    (phase,) = found.phases
    assert phase.hang
    assert phase.hang.health == "200"
    assert found.rest is None
    assert all("nothing came for 0.5 s" in one.error for one in phase.answers)


def test_a_server_that_does_not_answer_to_begin_with_is_not_loaded(server: Server) -> None:
    found = load(server.endpoint, error="answered 500")
    assert (found.phases, found.rides, server.generated) == ((), (), 0)


def test_workers_share_every_phase(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[Workers] = []

    def alone(*given: Any, workers: Workers, **more: Any) -> Driven:
        shared.append(workers)
        return measure(*given, **more)

    monkeypatch.setattr(loading, "measure", alone)
    monkeypatch.setattr(loading, "LEAST_BLOCK_S", 0.1)
    found = load(server.endpoint, soak_s=0.2, workers=Workers(2))
    assert shared == [Workers(2)] * (len(found.phases) + len(found.soak))
    assert len(shared) > 3


def test_a_soak_is_kept_in_blocks(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "LEAST_BLOCK_S", 0.1)
    found = load(server.endpoint, soak_s=5.0)
    assert len(found.soak) >= 2
    assert [one.at_s for one in found.soak] == sorted(one.at_s for one in found.soak)
    assert all(one.requests and not one.failed for one in found.soak)
    assert all(one.memory_bytes is None for one in found.soak)
