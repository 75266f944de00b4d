"""guidellm (https://github.com/vllm-project/guidellm) on a server, where its program is given.

It measures and prints no verdict: an exit status other than 0 and a failed request count as its
alarm. The options are those of guidellm 0.8.1 (`guidellm run --help`, 2026-11-28).
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contest.speed import STREAMS

if TYPE_CHECKING:
    from benchmarks.contest.types import Target

PROGRAM = "GUIDELLM"
"""The environment variable with the program's path."""
REQUESTS = 24
LIMIT_S = 120.0


def command(program: str, target: Target, tokenizer: str, output: Path) -> list[str]:
    """Return the command that sends some concurrent requests of synthetic text."""
    backend: dict[str, Any] = {"kind": "openai_http", "target": target.root_url}
    backend |= {"model": target.model} if target.model else {}
    backend |= {"api_key": target.key} if target.key else {}
    options: dict[str, dict[str, Any]] = {
        "backend": backend,
        "profile": {"kind": "concurrent", "streams": STREAMS},
        "constraint": {"kind": "max_requests", "count": REQUESTS},
        "tokenizer": {"kind": "huggingface_auto", "model": tokenizer},
        "data": {"kind": "synthetic_text", "prompt_tokens": 64, "output_tokens": 112},
        "output": {"kind": "json", "path": output},
    }
    argv = [program, "run", "--disable-console"]
    for name, values in options.items():
        argv += [f"--{name}", ",".join(f"{key}={value}" for key, value in values.items())]
    return argv


def judge(target: Target, tokenizer: str) -> tuple[bool | None, str, int]:
    """Return whether guidellm fails or counts errors, why, and the requests; None without it."""
    program = os.environ.get(PROGRAM)
    if not program:
        return None, f"{PROGRAM} is not set", 0
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "benchmarks.json"
        try:
            process = subprocess.run(
                command(program, target, tokenizer, output), check=False,
                timeout=LIMIT_S, capture_output=True, text=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return True, f"no end within {LIMIT_S:.0f} s", REQUESTS
        if process.returncode or not output.is_file():
            return True, f"exit status {process.returncode}: {process.stderr[-200:]}", REQUESTS
        failed = errored(json.loads(output.read_text(encoding="utf-8")))
    return failed > 0, f"{failed} requests failed", REQUESTS


def errored(report: Any) -> int:
    """Return the most requests that a count named `errored` in the report has."""
    if isinstance(report, dict):
        own = report.get("errored")
        counts = [errored(value) for value in report.values()]
        return max([*counts, own if isinstance(own, int) else 0], default=0)
    if isinstance(report, list):
        return max((errored(each) for each in report), default=0)
    return 0
