"""Runs the shipped gates as a person does, in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema

from pytest_vllm_gates.report import document

if TYPE_CHECKING:
    from collections.abc import Mapping

MODEL = "qwen3.5"
LIMIT_S = 400.0
TOKEN = "VLLM_GATES_TEST_TOKEN"
GONE_WITHIN_S = 5.0


@dataclass(frozen=True)
class GatesRun:
    """How a run of the gates ended, what it printed and its `verdict.json`."""

    status: int
    output: str
    verdict: dict[str, Any]

    def outcomes(self) -> dict[str, str]:
        """Return the gates' outcomes."""
        (family,) = self.verdict["families"]
        return {gate["gate"]: gate["outcome"] for gate in family["gates"]}

    def reasons(self, gate: str) -> str:
        """Return why a gate's tests did not pass."""
        (family,) = self.verdict["families"]
        (gate_report,) = [
            gate_report_ for gate_report_ in family["gates"] if gate_report_["gate"] == gate
        ]
        return "\n".join(test["reason"] for test in gate_report["tests"])


def start(
    folder: Path,
    *arguments: str,
    python: str = sys.executable,
    env: Mapping[str, str] | None = None,
    model: str | None = MODEL,
) -> subprocess.Popen[str]:
    """Start `pytest --model` in a folder; its report goes to `report` there."""
    argv = [python, "-m", "pytest", "--color=no", "--rootdir=.", "--gates-report=report"]
    return subprocess.Popen(
        [*argv, *(["--model", model] if model else []), *arguments],
        cwd=folder,
        env=environment(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(
    folder: Path,
    *arguments: str,
    python: str = sys.executable,
    env: Mapping[str, str] | None = None,
    model: str | None = MODEL,
    limit_s: float = LIMIT_S,
) -> GatesRun:
    """Run `pytest --model` in a folder to its end; the report has to fit its schema."""
    with start(folder, *arguments, python=python, env=env, model=model) as process:
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    file = folder / "report" / "verdict.json"
    assert file.is_file(), output
    verdict = json.loads(file.read_text(encoding="utf-8"))
    jsonschema.validate(verdict, json.loads(document.SCHEMA.read_text(encoding="utf-8")))
    return GatesRun(process.returncode, output, verdict)


def only_a_baseline_is_missing(gates_run: GatesRun) -> bool:
    """Return whether a first run on a machine found nothing wrong, and names the next step."""
    outcomes = gates_run.outcomes()
    (reason,) = gates_run.verdict["reasons"]
    return (
        outcomes.pop("throughput") == "MISSING"
        and set(outcomes.values()) <= {"PASS", "KNOWN", "N/A"}
        and reason.startswith(f"{MODEL}: throughput is MISSING: no baseline is recorded")
        and "-m throughput --update-baseline" in reason
        and "verdict: HOLD" in gates_run.output
        and gates_run.status == 0
    )


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this environment without variables that affect pytest or the gates' server."""
    left_out = ("PYTEST_", "OPENAI_", "COV_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    # conftest.py leaves plugins out that want the same options, as --base-url.
    kept = {"PYTEST_ADDOPTS": os.environ.get("PYTEST_ADDOPTS", "")}
    return inherited | kept | dict(variables or {})


def marked(token: str) -> list[int]:
    """Return the processes that have the token in their environment, in /proc."""
    processes = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            is_marked = f"{TOKEN}={token}".encode() in (folder / "environ").read_bytes().split(
                b"\0"
            )
        except OSError:  # gone meanwhile, or another user's
            continue
        if is_marked:
            processes.append(int(folder.name))
    return processes


def survivors(token: str, within_s: float = GONE_WITHIN_S) -> list[int]:
    """Return which marked processes still live after some seconds, early when none does."""
    deadline = time.monotonic() + within_s
    while (living := marked(token)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return living
