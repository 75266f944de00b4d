"""Runs pytest again and again in forks of one process that has imported everything.

A program: it reads a line of JSON for each run, `{"argv": [...], "folder": "..."}`, and answers
with one, `{"status": 0, "seconds": 1.5, "bytes": 200000000}`; the run's output is in
`<folder>/output.txt`. The bytes are the run's highest resident memory.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time

IMPORTED = (
    "openai", "openai.resources.chat.completions", "pydantic", "jinja2", "syrupy", "pytest",
    "pytest_vllm_gates.pytest_hooks", "pytest_vllm_gates.client.chat",
    "pytest_vllm_gates.session.boot",
)  # fmt: skip


def run(argv: list[str], folder: str) -> None:
    """Run pytest in this process, which ends with its status."""
    import pytest  # noqa: PLC0415

    os.chdir(folder)
    output = os.open("output.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    status = 70
    try:
        status = int(pytest.main(argv))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Serve runs until the input ends."""
    for name in IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        wanted = json.loads(line)
        begun = time.monotonic()
        pid = os.fork()
        if not pid:
            run(wanted["argv"], wanted["folder"])
        _, status, usage = os.wait4(pid, 0)
        answer = {
            "status": os.waitstatus_to_exitcode(status),
            "seconds": time.monotonic() - begun,
            "bytes": usage.ru_maxrss * 1024,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
