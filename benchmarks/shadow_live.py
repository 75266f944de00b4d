"""Rejects a canary that breaks one call in a hundred, on two real servers.

    python benchmarks/shadow_live.py [--runs 10] [--pairs 500] [--broken 0.01]

Boots a miniature twice, as the stable server and as the canary, each behind a proxy. The canary's
proxy turns a seeded share of its calls into text, like a parser that sometimes fails. In each run
clients send requests through a new shadow until it rejects, or has judged `--pairs`. Prints a line
for each run and a summary; exits 1 if fewer than 95 % of the runs reject, or if the same canary
without the faults is rejected in a last run.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from e2e.served import Served
from faults.messages import Message, as_message
from faults.proxy import Proxy
from faults.upstream import Upstream
from shadow.shadow_servers import CHAT, WEATHER, ShadowProcess, ask, judged, shadow

if TYPE_CHECKING:
    from pytest_vllm_gates.client.endpoint import Endpoint

FAMILY = "qwen3.5"
CLIENTS = 8
ANSWER_TOKENS = 120
KEY = "SHADOW_CANARY_KEY"
ENOUGH = 0.95
OK = 200


class SeldomText:
    """Turns calls into text, each with a probability."""

    def __init__(self, seed: int, share: float) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - a simulation
        self._share = share
        self._lock = threading.Lock()
        self.broken = 0
        self.change = as_message(self._change)

    def _change(self, message: Message) -> None:
        with self._lock:
            breaks = bool(message.calls) and self._chance.random() < self._share
            self.broken += breaks
        if breaks:
            message.content = json.dumps({"name": message.calls[0].name})
            message.calls = []
            message.finish_reason = "stop"


def body(run: int, number: int) -> bytes:
    """Return a request that has to call; all differ, so that each answer is generated."""
    question = f"What is the weather in Oslo? ({run}-{number})"
    return json.dumps(
        {
            "model": FAMILY,
            "messages": [{"role": "user", "content": question}],
            "tools": [WEATHER],
            "tool_choice": "required",
            "temperature": 0,
            "max_tokens": ANSWER_TOKENS,
            "stream": number % 2 == 1,
        }
    ).encode()


def one_run(stable: Endpoint, run: int, pairs: int, process: ShadowProcess) -> dict[str, Any]:
    """Send requests until the shadow rejects or has judged all pairs; return its last document."""
    ended = threading.Event()

    def client(first: int) -> None:
        for number in range(first, pairs, CLIENTS):
            if ended.is_set():
                return
            headers = stable.request_headers()
            data = body(run, number)
            status, _, answer = ask(process.port, "POST", CHAT, data, headers, named=False)
            if status != OK:
                raise RuntimeError(f"the stable server answers {status}: {answer!r}")

    with ThreadPoolExecutor(CLIENTS) as pool:
        asked = [pool.submit(client, first) for first in range(CLIENTS)]
        while not all(each.done() for each in asked):
            time.sleep(0.2)
            if process.document()["promotion"] == "REJECT":
                ended.set()
        for each in asked:
            each.result()
    if ended.is_set():
        return process.document()
    return process.until(lambda document: judged(document) >= pairs)


def main() -> int:
    """Boot both servers and run them against each other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--broken", type=float, default=0.01)
    options = parser.parse_args()
    started: list[Served] = []
    rejected, false_alarms = [], 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            started.append(Served(FAMILY, Path(folder, "stable"), lambda _: None))
            started.append(Served(FAMILY, Path(folder, "canary"), lambda _: None))
            ends = [server.endpoint for server in started]
            upstreams = [Upstream(end.base_url, end.api_key, end.model) for end in ends]
            for run in range(options.runs + 1):
                faults = SeldomText(run, options.broken if run < options.runs else 0.0)
                begun = time.monotonic()
                place = Path(folder, f"run-{run}")
                place.mkdir()
                env = {KEY: ends[1].api_key or "none"}
                names = ("--canary-key-env", KEY, "--model", FAMILY)
                with (
                    Proxy(upstreams[0]) as stable,
                    Proxy(upstreams[1], reply=faults.change) as canary,
                    shadow(stable.base_url, canary.base_url, place, *names, env=env) as process,
                ):
                    document = one_run(ends[0], run, options.pairs, process)
                line = {
                    "run": run, "broken": faults.broken, "pairs": document["pairs"],
                    "promotion": document["promotion"],
                    "seconds": round(time.monotonic() - begun, 1),
                    "reasons": document["reasons"][:1],
                }  # fmt: skip
                print(json.dumps(line), flush=True)
                if document["promotion"] == "REJECT" and run < options.runs:
                    rejected.append(document["pairs"])
                elif document["promotion"] == "REJECT":
                    false_alarms += 1
        finally:
            for server in started:
                server.stop()
    print(f"{len(rejected)} of {options.runs} rejected, {false_alarms} of 1 clean")
    return int(len(rejected) < ENOUGH * options.runs or bool(false_alarms))


if __name__ == "__main__":
    sys.exit(main())
