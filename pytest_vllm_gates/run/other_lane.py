"""The same gates on the other lane, in a pytest of their own before ours: what `--against` needs.

A process of its own keeps that run's outcomes, exit status and JUnit apart from this one's, and its
report is a whole one that can be read alone.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.facts.command_line import without
from pytest_vllm_gates.process.process import GuardedProcess
from pytest_vllm_gates.report import document as report_document
from pytest_vllm_gates.server.log import LogWatch, read_from

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from pytest_vllm_gates.options import Options

FOLDER = "against"
LOG = "pytest.txt"
POLL_S = 0.5
LAST_LINES = 5
# Measured for both lanes at once, pair by pair, by our own run.
NOT_THERE = "throughput"
# Options that are this run's alone: with a value, and without.
VALUED = (
    "--against", "--pairs", "--lane", "--gates-report", "--gates-history", "--junitxml",
    "--junit-xml", "--html", "--maxfail", "-m",
)  # fmt: skip
FLAGS = (
    "--update-golden", "--update-baseline", "--require-promotion", "--lf", "--last-failed", "--ff",
    "--failed-first", "--nf", "--new-first", "--sw", "--stepwise", "--exitfirst", "-x",
)  # fmt: skip
# The same as a project's settings.
INI = {
    "gates_against": "",
    "gates_pairs": "",
    "gates_lane": "",
    "gates_report": "",
    "gates_no_history": "true",
    "gates_update_golden": "false",
    "gates_update_baseline": "false",
    "gates_require_promotion": "false",
}


@dataclass(frozen=True)
class OtherRun:
    """What came of the other lane's run: its `verdict.json`, or why there is none."""

    folder: Path
    document: dict[str, Any] | None
    problem: str = ""


def run(config: pytest.Config, options: Options, tell: Callable[[str], None]) -> OtherRun:
    """Run the gates this run was asked for on the lane it is held against."""
    assert options.against and options.report_dir  # noqa: S101 - or nothing asks for it
    folder = options.report_dir / FOLDER
    (folder / report_document.NAME).unlink(missing_ok=True)
    log = folder / LOG
    log.unlink(missing_ok=True)
    process = GuardedProcess(
        command(config, options.against, folder),
        env=dict(os.environ),
        log=log,
        cwd=config.invocation_params.dir,
    )
    try:
        watch = LogWatch(log)
        while process.wait(POLL_S) is None:
            watch.silent_s()
            tell(f"the gates on lane {options.against}: {watch.last_line}")
    finally:
        process.stop()
    path = folder / report_document.NAME
    try:
        return OtherRun(folder, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        told = "\n".join(read_from(log).splitlines()[-LAST_LINES:])
        problem = f"the gates did not run on lane {options.against}: {told}\nwhole output: {log}"
        return OtherRun(folder, None, problem)


def command(config: pytest.Config, lane: str, folder: Path) -> list[str]:
    """Return the command that runs this run's gates on another lane."""
    arguments = [str(one) for one in config.invocation_params.args]
    wanted = f"not {NOT_THERE}"
    if config.option.markexpr:
        wanted = f"({config.option.markexpr}) and {wanted}"
    overrides = [word for pair in INI.items() for word in ("-o", "=".join(pair))]
    return [
        *(sys.executable, "-m", "pytest"),
        *without(arguments, VALUED, FLAGS),
        *("--lane", lane, "--gates-report", str(folder), "-m", wanted),
        *("-p", "no:cacheprovider", *overrides),
    ]
