"""Drives a load from a separate process, so that this one cannot delay it."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pytest_vllm_gates.client import http
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.load.generator import samples
from pytest_vllm_gates.load.generator.program import Job
from pytest_vllm_gates.load.generator.result import NOT_WRITTEN
from pytest_vllm_gates.load.types import ALONE
from pytest_vllm_gates.process.process import GuardedProcess

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.load.types import DrivenLoad, PlannedRequest, Workers

PROGRAM = "pytest_vllm_gates.load.generator.program"
LOCUST_PROGRAM = "pytest_vllm_gates.load.generator.locust_master"
SILENCE_S = 120.0
LOOK_S = 60.0


def measure(
    endpoint: Endpoint,
    requests: Iterable[PlannedRequest],
    users: int | None = None,
    *,
    silence_s: float = SILENCE_S,
    seconds: float = math.inf,
    workers: Workers = ALONE,
) -> DrivenLoad:
    """Send the requests at their times, or so many at a time; return the raw responses.

    `silence_s`: how long an answer may send nothing before it is abandoned; `seconds`: when to stop
    sending more; `workers`: the processes that share the sending, under a locust master.
    Raises `UserError` on a full disk and `RuntimeError` if the process failed.
    """
    url, encrypted = urlsplit(endpoint.base_url), http.encrypted(endpoint)
    assert url.hostname  # noqa: S101 - the options take no other URL
    headers = {"Content-Type": "application/json", **endpoint.request_headers()}
    job = Job(
        url.hostname, url.port or (443 if encrypted else 80), headers, tuple(requests), users,
        silence_s, seconds, workers, endpoint.verify if encrypted else None,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        job_file, result = Path(name, "job"), Path(name, "result")
        job_file.touch(mode=0o600)  # it contains the key
        job_file.write_bytes(pickle.dumps(job))
        files = [str(job_file), str(result)]
        output = _by_locust(files, Path(name, "log")) if workers.count else _alone(files)
        if output is not None:
            _, lost, why = output.rpartition(NOT_WRITTEN)
            if lost:
                raise UserError(f"{lost}{why.strip()}")
            raise RuntimeError(f"the process that drove the load failed:\n{output}")
        load: DrivenLoad = pickle.loads(result.read_bytes())  # noqa: S301 - written by our own process
    if endpoint.tape:
        planned = {request.name: request for request in job.requests}
        root = urlsplit(endpoint.root_url).path.rstrip("/")
        for raw in samples.worth_keeping(load.raws):
            endpoint.tape.keep(samples.sent(raw, planned[raw.name], headers, root))
    return load


def _alone(files: list[str]) -> str | None:
    """Drive a job from one process; return its output if it failed."""
    done = subprocess.run(
        [sys.executable, "-m", PROGRAM, *files],
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    return done.stderr if done.returncode else None


def _by_locust(files: list[str], log: Path) -> str | None:
    """Drive a job from a locust master and its workers, all of which end with the call."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("LOCUST_")}
    process = GuardedProcess([sys.executable, "-m", LOCUST_PROGRAM, *files], env=env, log=log)
    try:
        while (status := process.wait(LOOK_S)) is None:
            pass
    finally:
        process.stop(0.0)
    return log.read_text(encoding="utf-8", errors="replace") if status else None
