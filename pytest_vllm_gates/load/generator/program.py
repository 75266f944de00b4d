"""The process that drives a load: it reads a job, drives it, and writes the raw responses.

    python -m pytest_vllm_gates.load.generator.program JOB RESULT

Both files are pickles of this package's own records; only `measure` writes and reads them.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.load.generator import result
from pytest_vllm_gates.load.generator.loop import Loop
from pytest_vllm_gates.load.generator.socket_client import Target
from pytest_vllm_gates.load.types import ALONE

if TYPE_CHECKING:
    from pytest_vllm_gates.load.generator.socket_client import Verify
    from pytest_vllm_gates.load.types import PlannedRequest, Workers


@dataclass(frozen=True)
class Job:
    """The requests of a load and where to send them."""

    host: str
    port: int
    headers: dict[str, str]
    requests: tuple[PlannedRequest, ...]
    users: int | None
    """So many at a time; None: each at its own time."""
    silence_s: float
    seconds: float
    workers: Workers = ALONE
    verify: Verify = None


def main(job_file: str, result_file: str) -> None:
    """Drive the job."""
    job: Job = pickle.loads(Path(job_file).read_bytes())  # noqa: S301 - written by `measure`
    target = Target(job.host, job.port, job.headers, job.verify)
    loop = Loop(target, silence_s=job.silence_s)
    load = loop.run(job.requests, job.users, seconds=job.seconds)
    result.write(result_file, load)


if __name__ == "__main__":
    main(*sys.argv[1:])
