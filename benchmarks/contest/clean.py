"""Clean servers: what is recorded of them, and what the contestants say of others."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import overhead  # type: ignore[import-not-found, unused-ignore]

from benchmarks.contest import look, speed, types
from benchmarks.contest.types import Look, Reference, Target
from pytest_vllm_gates.files import write_whole

if TYPE_CHECKING:
    from pytest_vllm_gates.client.endpoint import Endpoint

TOKENS = re.compile(r"^vllm:(?:prompt|generation)_tokens_total\{[^}]*\} ([\d.e+]+)$", re.MULTILINE)
REQUESTS = re.compile(r"^vllm:request_success_total\{[^}]*\} ([\d.e+]+)$", re.MULTILINE)
KEY = "LEAGUE_SERVER_KEY"
GATES = "not throughput"
"""Of the default run; throughput wants a baseline, which an empty folder has not."""


def counts(endpoint: Endpoint) -> tuple[float, float]:
    """Return the prompt and generated tokens, and the requests, that a server counted."""
    reply = httpx.get(f"{endpoint.root_url}/metrics", headers=endpoint.request_headers())
    sums = [sum(map(float, each.findall(reply.text))) for each in (TOKENS, REQUESTS)]
    return sums[0], sums[1]


def target_of(endpoint: Endpoint, family: str) -> Target:
    """Return a booted server as contestants look at it."""
    return Target(endpoint.base_url, endpoint.api_key, endpoint.model, family)


def record_references(path: Path, family: str, boots: int) -> None:
    """Record a clean server's answers, and its speed in so many boots."""
    reference = Reference()
    for number in range(boots):
        with tempfile.TemporaryDirectory() as folder:
            server = overhead.boot(family, Path(folder))
            try:
                target = target_of(server.boot.endpoint, family)
                speed.measure(target)  # warms it up
                # In each boot: a server that is judged has answered them, too.
                replies = look.record(target, speeds=0).replies
                reference.replies = reference.replies or replies
                reference.speeds.append(speed.measure(target)[0])
            finally:
                server.stop()
        print(f"{family}: boot {number + 1}, {reference.speeds[-1]:.0f} tokens/s", flush=True)
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    write_whole(path, json.dumps({**known, family: reference.record()}, indent=1) + "\n")


def judge(family: str, reference: Reference, commit: str, at: str) -> dict[str, Any]:
    """Boot a clean server and return what each contestant says and costs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = overhead.boot(family, folder)
        try:
            endpoint: Endpoint = server.boot.endpoint
            spent: dict[str, tuple[float, float]] = {}
            began: list[tuple[str, tuple[float, float]]] = []

            def around(contestant: str) -> None:
                now = counts(endpoint)
                if began:
                    before, (tokens, requests) = began.pop()
                    spent[before] = (now[0] - tokens, now[1] - requests)
                began.append((contestant, now))

            speed.measure(target_of(endpoint, family))  # warms it up, as the references were
            tokenizer = str(overhead.checkpoint(family, folder).source)
            looks = look.look(target_of(endpoint, family), reference, around, tokenizer)
            before = counts(endpoint)
            looks[types.SUITE] = suite(family, endpoint, folder)
            after = counts(endpoint)
            spent[types.SUITE] = (after[0] - before[0], after[1] - before[1])
        finally:
            server.stop()
    if types.FIXED in spent:  # one measurement serves both rules
        spent[types.FIXED] = spent[types.NIGHTLY]
    return {
        "what": "clean",
        "family": family,
        "looks": {
            contestant: {
                **one.record(),
                "tokens": spent.get(contestant, (0, 0))[0],
                "requests": spent.get(contestant, (0, 0))[1] or one.requests,
            }
            for contestant, one in looks.items()
        },
        "at": at,
        "commit": commit,
    }


def suite(family: str, endpoint: Endpoint, folder: Path) -> Look:
    """Run this suite's gates on a server in an empty folder; any FAIL is an alarm."""
    project = folder / "project"
    project.mkdir()
    argv = [sys.executable, "-m", "pytest", "--rootdir=.", "--gates-report=report", "--color=no"]
    argv += ["--model", family, "--gates-base-url", endpoint.base_url, "-m", GATES]
    argv += ["--gates-api-key-env", KEY]
    began = time.monotonic()
    process = subprocess.run(
        argv, cwd=project, env={**os.environ, KEY: endpoint.api_key or ""}, check=False,
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    seconds = time.monotonic() - began
    report = project / "report" / "verdict.json"
    if not report.is_file():
        return Look(found=True, why=process.stdout[-300:], seconds=seconds)
    verdict = json.loads(report.read_text(encoding="utf-8"))
    failed = [
        test["reason"]
        for one in verdict["families"]
        for gate in one["gates"]
        for test in gate["tests"]
        if test["outcome"] == "FAIL"
    ]
    return Look(found=bool(failed), why="; ".join(failed)[:300], seconds=seconds)
