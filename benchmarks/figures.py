"""Measures every figure that this project guarantees, and writes a page with all of them.

    python benchmarks/figures.py                          all of them, an hour or two
    python benchmarks/figures.py "kept server" arrivals   these; the others stay unchanged

Runs the programs of figures.toml one after the other, shows their output, and stores each figure
with the day, the machine and the commit in docs/figures.json; docs/figures.md is the page of it.
What another kind of machine measured is kept.
Figures with `as_user` are measured in a new environment, made as README says: the plugins and tools
of `dev` have their own cost.
Exits 1 if a figure exceeds its limit. Measure on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from pytest_vllm_gates.files import write_whole
from pytest_vllm_gates.machine import cpu_flags
from pytest_vllm_gates.machine.inspect import inspect

HERE = Path(__file__).parent
PLAN = HERE / "figures.toml"
MEASURED = HERE.parent / "docs" / "figures.json"
TABLE = MEASURED.with_suffix(".md")
HEAD = (
    "# Figures\n\nEvery figure that this project guarantees, with its limit and the program that "
    "measures it.\nTo measure all of them again, run `python benchmarks/figures.py`; to measure "
    "one, run its program.\nThe first lines of each program describe it.\n\n"
)


def plan() -> dict[str, dict[str, Any]]:
    """Return the figures by name."""
    return {
        figure["name"]: figure
        for figure in tomllib.loads(PLAN.read_text(encoding="utf-8"))["figure"]
    }


def measure(figure: dict[str, Any]) -> dict[str, Any]:
    """Run a figure's program and return its result."""
    with tempfile.TemporaryDirectory() as folder:
        python = installed(Path(folder)) if figure.get("as_user") else sys.executable
        load, began = os.getloadavg()[0], time.monotonic()
        lines, kept = output(python, figure)
    return {
        "figure": [line for line in lines if line][-figure.get("last", 1) :],
        "kept": kept,
        "day": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": _machine(),
        "commit": commit(),
        "load": round(load, 1),
        "minutes": round((time.monotonic() - began) / 60, 1),
    }


def installed(folder: Path) -> str:
    """Make an environment with this project, as users install it; return its Python.

    The gates are collected once in it, for pytest compiles them at the first run.
    """
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    # Hypothesis parses the whole source of an editable install.
    pip = [python, "-m", "pip", "install", "--quiet", "--quiet", str(HERE.parent)]
    subprocess.run(pip, check=True)
    collect = [python, "-m", "pytest", "--rootdir=.", "--collect-only", "--quiet"]
    subprocess.run(
        [*collect, "--model", "qwen3.5", "--lane", "cpu"],
        cwd=folder, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return python


def output(python: str, figure: dict[str, Any]) -> tuple[list[str], bool]:
    """Run a figure's program and show what it prints; return the lines, and whether it exits 0."""
    program = HERE / f"{figure['program']}.py"
    lines: list[str] = []
    with subprocess.Popen(
        [python, str(program), *figure.get("arguments", [])], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout  # noqa: S101 - it is a pipe
        for line in running.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    return lines, running.returncode == 0


def merged(results: list[dict[str, Any]], fresh: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a figure's results, one by machine, with a fresh one for its machine."""
    return [*(each for each in results if each["machine"] != fresh["machine"]), fresh]


def table(measured: dict[str, list[dict[str, Any]]]) -> str:
    """Return the page: a section for each machine, the figures in the order of the plan."""
    measured_figures = [
        (each, result) for name, each in plan().items() for result in measured.get(name, ())
    ]
    text = HEAD
    for machine in dict.fromkeys(result["machine"] for _, result in measured_figures):
        text += f"## {machine}\n\n"
        for figure, result in measured_figures:
            if result["machine"] != machine:
                continue
            verdict = "within its limit" if result["kept"] else "**beyond its limit**"
            text += (
                f"### {figure['what']}\n\n```text\n" + "\n".join(result["figure"]) + "\n```\n\n"
                f"{verdict}; `benchmarks/{figure['program']}.py`, {result['day']}, commit "
                f"{result['commit']}, {result['minutes']} min, load before {result['load']}\n\n"
            )
    absent = [each["what"] for name, each in plan().items() if name not in measured]
    if absent:
        text += "## Not measured yet\n\n" + "".join(f"- {title}\n" for title in absent)
    return text.rstrip() + "\n"


def _machine() -> str:
    machine = inspect()
    gpus = f", {', '.join(map(str, machine.gpus))}" if machine.gpus else ", no GPU"
    cpu = cpu_flags.named(machine.cpu, cpu_flags.generation(), cpu_flags.flags())
    return f"{cpu}, {os.cpu_count()} cores{gpus}"


def commit() -> str:
    """Return the measured commit, with `-dirty` if the tree differs from it."""
    process = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=HERE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return process.stdout.strip() or "unknown"


def main() -> int:
    """Measure the requested figures; write each as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help=f"default: all of {', '.join(plan())}")
    options = parser.parse_args()
    if unknown := set(options.names) - set(plan()):
        parser.error(f"unknown figure {', '.join(sorted(unknown))}; known: {', '.join(plan())}")
    results = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {}
    beyond = 0
    for name, figure in plan().items():
        if options.names and name not in options.names:
            continue
        print(f"== {figure['what']}", flush=True)
        fresh = measure(figure)
        results[name] = merged(results.get(name, []), fresh)
        beyond += not fresh["kept"]
        write_whole(MEASURED, json.dumps(results, indent=1, sort_keys=True) + "\n")
        write_whole(TABLE, table(results))
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
