"""Drives a load from a process of its own, so that nothing this one does can delay it."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pytest_vllm_gates.drive.measuring.program import Job
from pytest_vllm_gates.facts.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_vllm_gates.facts.launch import Endpoint
    from pytest_vllm_gates.facts.timing import Driven, Planned

PROGRAM = "pytest_vllm_gates.drive.measuring.program"
SILENCE_S = 120.0


def why_not(endpoint: Endpoint) -> str:
    """Return why no load can be driven there; '' where it can."""
    url = urlsplit(endpoint.base_url)
    if url.scheme == "http" and url.hostname:
        return ""
    return (
        f"{endpoint.base_url}: a load is driven over plain HTTP, at whose sockets the kernel's "
        "time is that of a token; name the server's own address, behind the proxy that speaks TLS"
    )


def measure(
    endpoint: Endpoint,
    requests: Iterable[Planned],
    users: int | None = None,
    *,
    silence_s: float = SILENCE_S,
    seconds: float = math.inf,
) -> Driven:
    """Send the requests at their times, or so many at a time; return what came, unread.

    `silence_s`: how long an answer may stay away, or stop, before it is given up; `seconds`: when
    to stop sending more.
    Raises `UserError` for a server that is not spoken to in plain HTTP, `RuntimeError` where the
    process failed.
    """
    if why := why_not(endpoint):
        raise UserError(why)
    url = urlsplit(endpoint.base_url)
    assert url.hostname  # noqa: S101 - or that was why not
    headers = {"Content-Type": "application/json"}
    if endpoint.api_key:
        headers["Authorization"] = f"Bearer {endpoint.api_key}"
    job = Job(url.hostname, url.port or 80, headers, tuple(requests), users, silence_s, seconds)
    with tempfile.TemporaryDirectory() as name:
        job_file, result = Path(name, "job"), Path(name, "result")
        job_file.touch(mode=0o600)  # it holds the key
        job_file.write_bytes(pickle.dumps(job))
        done = subprocess.run(
            [sys.executable, "-m", PROGRAM, str(job_file), str(result)],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"the process that drove the load failed:\n{done.stderr}")
        load: Driven = pickle.loads(result.read_bytes())  # noqa: S301 - written by our own process
    return load
