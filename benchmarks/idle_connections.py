"""Sends requests while the server closes idle connections: none may fail.

    python benchmarks/idle_connections.py --requests 2000

Like vLLM's server (`VLLM_HTTP_TIMEOUT_KEEP_ALIVE`), the server keeps connections and closes them
after five idle seconds, here 0 to 200 ms later. Each of the project's clients sends its requests
between 5.0 and 5.2 seconds after the previous one, a hundred in parallel. A client that keeps
connections does the same, which proves that the race occurs. Prints the failures of each, and exits
1 if one of the project's clients has any, or if the client that keeps connections has none.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import httpx2 as httpx
import openai
from servers import running
from servers.idle import IdleClosingServer

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.chat import Chat
from pytest_vllm_gates.load.generator.measure import measure
from pytest_vllm_gates.load.generator.parse import answered
from pytest_vllm_gates.load.types import ALONE, PlannedRequest, Workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.client.endpoint import Endpoint

IDLE_S, JITTER_S = 5.0, 0.2
SIDE_BY_SIDE = 100
CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 1}


def asked(ask: Callable[[], object], requests: int, idle_s: float, jitter_s: float) -> int:
    """Return the number of failed requests, sent in sequence while connections close."""
    failed: list[str] = []
    each = requests // SIDE_BY_SIDE

    def one_after_the_other(number: int) -> None:
        for turn in range(each):
            time.sleep(idle_s + jitter_s * (number * each + turn) / requests)
            try:
                ask()
            except (httpx.HTTPError, openai.OpenAIError) as error:
                failed.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=one_after_the_other, args=(n,)) for n in range(SIDE_BY_SIDE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(failed)


def keeps(endpoint: Endpoint) -> Callable[[], object]:
    """Return a function that sends with one client for each thread, which keeps its connection."""
    own = threading.local()

    def ask() -> object:
        if not hasattr(own, "client"):
            limits = httpx.Limits(keepalive_expiry=None)  # httpx's own 5 s would hide the race
            own.client = httpx.Client(base_url=endpoint.root_url, trust_env=False, limits=limits)
        return own.client.post(CHAT, json=BODY)

    return ask


def plain(endpoint: Endpoint) -> Callable[[], object]:
    """Return a function that sends with the project's own client."""
    client = http.client(endpoint)
    return lambda: client.post(CHAT, json=BODY)


def chat(endpoint: Endpoint) -> Callable[[], object]:
    """Return a function that sends with the openai client, like the conversation gates."""
    client = Chat(endpoint, families.load("qwen3.5", Path.cwd()))
    return lambda: client.ask(BODY)


def measured(
    endpoint: Endpoint, requests: int, idle_s: float, jitter_s: float, workers: Workers
) -> int:
    """Return the number of the measuring client's failed requests, sent at the same intervals."""
    every_s = (idle_s + jitter_s / 2) / SIDE_BY_SIDE
    planned = [
        PlannedRequest(str(number), CHAT, b'{"stream": true}', number * every_s)
        for number in range(requests)
    ]
    driven = measure(endpoint, planned, workers=workers)
    return sum(bool(raw.error or answered(raw).error) for raw in driven.raws)


def main() -> int:
    """Send every client's requests; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--idle", type=float, default=IDLE_S, help="seconds; default: 5")
    parser.add_argument("--jitter", type=float, default=JITTER_S, help="seconds; default: 0.2")
    parser.add_argument("--client", default="", help="part of the names of the clients to test")
    options = parser.parse_args()
    pace = (options.requests, options.idle, options.jitter)
    programs: dict[str, Callable[[Endpoint], int]] = {
        "keeps connections (for comparison)": lambda server: asked(keeps(server), *pace),
        "http client": lambda server: asked(plain(server), *pace),
        "chat client": lambda server: asked(chat(server), *pace),
        "measuring client": lambda server: measured(server, *pace, ALONE),
        "measuring client, 2 locust workers": lambda server: measured(server, *pace, Workers(2)),
    }
    wrong = False
    for name, program in programs.items():
        if options.client not in name:
            continue
        begun = time.monotonic()
        with running(IdleClosingServer(options.idle, options.jitter)) as server:
            failed = program(server.endpoint)
            expected = "for comparison" in name
            wrong |= expected is not bool(failed)
            print(
                f"{name}: {failed} of {options.requests} requests failed; {server.lost} met a "
                f"connection that was closing; {time.monotonic() - begun:.0f} s",
                flush=True,
            )
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
