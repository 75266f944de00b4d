"""Judges a healthy running server repeatedly: no run may find a fault.

    python benchmarks/false_alarms.py shared --times 10 --log alarms.jsonl
    python benchmarks/false_alarms.py twins --times 10 --log alarms.jsonl [-m "boot or isolation"]
    python benchmarks/false_alarms.py tally --log alarms.jsonl
    python benchmarks/false_alarms.py add REPORT... [--log FILE]

`shared`: another client sends requests to the server during the runs. `twins`: two lanes name the
same server, and one is judged against the other. One server is booted for all runs; `clean_runs.py`
boots one for each. `tally` counts a log. FAIL, REJECT and a run without a verdict are alarms;
INCONCLUSIVE and HOLD are not. Each run appends a line to the log, so the runs can be split. Exits 1
if there was an alarm, or a run that its program did not count as clean. `add` appends the runs of
the given reports, all of healthy servers, to RECORDED or the log, and counts that log; their commit
is the newest one of that time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import overhead  # type: ignore[import-not-found, unused-ignore]
from figures import commit  # type: ignore[import-not-found, unused-ignore]

from pytest_vllm_gates.client import http

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.client.endpoint import Endpoint

KEY = "GATES_BENCHMARK_KEY"
LANE = 'title = "the server of a benchmark"\nbase_url = "{url}"\napi_key_env = "{key}"\n'
CLIENTS = 2
PAUSE_S = 0.5
"""The longest pause of the other client between two chats, in seconds."""
TOKENS = (4, 200)
RECORDED = Path(__file__).parent / "recorded" / "clean_runs.jsonl"


def main() -> int:
    """Judge the server `--times` times."""
    if sys.argv[1:2] == ["add"]:
        return add(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("how", choices=("shared", "twins", "tally"))
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--model", default="qwen3.5")
    parser.add_argument("--log", type=Path, default=Path("alarms.jsonl"))
    options, arguments = parser.parse_known_args()
    if options.how == "tally":
        return tally(options.log)
    alarms = 0
    with tempfile.TemporaryDirectory() as folder:
        server = overhead.boot(options.model, Path(folder))
        try:
            endpoint: Endpoint = server.boot.endpoint
            for number in range(1, options.times + 1):
                run = judge(options.how, options.model, endpoint, arguments)
                alarms += run["alarm"]
                with options.log.open("a", encoding="utf-8") as log:
                    log.write(json.dumps(run) + "\n")
                counts = ", ".join(f"{many} {name}" for name, many in run["outcomes"].items())
                print(
                    f"{number:3d}  {run['promotion']}  {run['seconds']:.0f} s  {counts}", flush=True
                )
                for reason in run["reasons"] if run["alarm"] else ():
                    print(f"     {reason}", flush=True)
        finally:
            server.stop()
    print(f"{alarms} false alarms in {options.times} runs ({options.how})")
    return 1 if alarms else 0


def judge(how: str, model: str, endpoint: Endpoint, arguments: list[str]) -> dict[str, Any]:
    """Run pytest once in an empty folder; return its result."""
    argv = [sys.executable, "-m", "pytest", "--rootdir=.", "--gates-report=report", "--color=no"]
    argv += ["--model", model]
    environment = {**os.environ, KEY: endpoint.api_key or ""}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if how == "twins":
            (folder / "lanes").mkdir()
            for lane in ("canary", "stable"):
                text = LANE.format(url=endpoint.base_url, key=KEY)
                (folder / "lanes" / f"{lane}.toml").write_text(text, encoding="utf-8")
            argv += ["--lane", "canary", "--against", "stable"]
        else:
            argv += ["--gates-base-url", endpoint.base_url, "--gates-api-key-env", KEY]
        began = time.monotonic()
        with others(endpoint) if how == "shared" else contextlib.nullcontext():
            process = subprocess.run(
                [*argv, *arguments], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        file = folder / "report" / "verdict.json"
        if not file.is_file():
            raise SystemExit(f"the run has no verdict:\n{process.stdout}{process.stderr}")
        report = json.loads(file.read_text(encoding="utf-8"))
    return record(how, model, time.monotonic() - began, report)


def record(how: str, model: str, seconds: float, report: dict[str, Any]) -> dict[str, Any]:
    """Return a run's line of the log, from its `verdict.json`; an empty report is an alarm."""
    outcomes = Counter(
        test["outcome"]
        for family in report.get("families", [])
        for gate in family["gates"]
        for test in gate["tests"]
    )
    return {
        "how": how,
        "model": model,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "seconds": round(seconds, 1),
        "promotion": report.get("promotion"),
        "outcomes": dict(sorted(outcomes.items())),
        "reasons": report.get("reasons", []),
        "alarm": report.get("promotion") in ("REJECT", None) or "FAIL" in outcomes,
        **_throughput(report),
    }


def add(argv: list[str]) -> int:
    """Append clean runs by their reports, one line a family; return the status of the tally."""
    parser = argparse.ArgumentParser(prog="false_alarms.py add")
    parser.add_argument("reports", nargs="+", type=Path, help="folders that --gates-report named")
    parser.add_argument("--log", type=Path, default=RECORDED)
    options = parser.parse_args(argv)
    lines: list[dict[str, Any]] = []
    for folder in options.reports:
        file = folder / "verdict.json" if folder.is_dir() else folder
        if not file.is_file():
            parser.error(f"{file}: no such file; name the folder that --gates-report named")
        lines += clean_lines(json.loads(file.read_text(encoding="utf-8")))
    options.log.parent.mkdir(parents=True, exist_ok=True)
    with options.log.open("a", encoding="utf-8") as log:
        log.writelines(json.dumps(line) + "\n" for line in lines)
    return tally(options.log)


def commit_at(time: str) -> str:
    """Return the newest commit of a time, in ISO 8601; "unknown" where Git has none."""
    process = subprocess.run(
        ["git", "log", "-1", "--format=%h", f"--before={time}"],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return process.stdout.strip() or "unknown"


def clean_lines(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a line for each family of a run on a healthy server."""
    lines = []
    for family in report["families"]:
        of_family = {**report, "families": [family]}
        seconds = sum(gate["duration_s"] for gate in family["gates"])
        line = record(f"booted on {report['lane']['name']}", family["name"], seconds, of_family)
        failed = sorted(gate["gate"] for gate in family["gates"] if gate["outcome"] == "FAIL")
        # A run is rejected as a whole; a family alarms only if one of its own gates failed.
        alarm = bool(failed) or line["promotion"] is None
        lines.append(
            {
                **line,
                "at": report["created"],
                "commit": commit_at(report["created"]),
                "lane": report["lane"]["name"],
                "failed": failed,
                "alarm": alarm,
                "clean": not alarm,
            }
        )
    return lines


def _throughput(report: dict[str, Any]) -> dict[str, Any]:
    """Return the change of throughput against the baseline in a run's report."""
    for family in report.get("families", []):
        for gate in family["gates"]:
            for test in gate["tests"]:
                evidence = test.get("evidence") or {}
                if "baseline" in evidence and evidence["decision"]["changes"]:
                    figures = evidence["figures"]
                    names = ("output_tokens_per_s", "itl_s", "speed", "others")
                    change = evidence["decision"]["changes"]["output_tokens_per_s"]["change"]
                    pace = {**{name: figures[name] for name in names}, "change": change}
                    return {"throughput": {**pace, "rounds": evidence["rounds"]}}
    return {}


def tally(log: Path) -> int:
    """Print the number of runs of each kind in a log and their outcomes; return the status."""
    if not log.is_file():
        raise SystemExit(f"{log}: the log does not exist; name the log of earlier runs: --log FILE")
    runs = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    for how, model in dict.fromkeys((run["how"], run["model"]) for run in runs):
        of_kind = [run for run in runs if (run["how"], run["model"]) == (how, model)]
        came_to = Counter(run["promotion"] for run in of_kind)
        alarms = sum(run["alarm"] for run in of_kind)
        words = ", ".join(f"{many} {promotion}" for promotion, many in came_to.items())
        print(f"{how}  {model}: {len(of_kind)} runs, {words}, {alarms} false alarms")
    changes = [run["throughput"]["change"] for run in runs if "throughput" in run]
    if changes:
        print(
            f"throughput of {len(changes)} healthy boots against baselines of the same bundle: "
            f"{min(changes):+.1%} to {max(changes):+.1%}, median {statistics.median(changes):+.1%}"
        )
    alarms = sum(run["alarm"] for run in runs)
    unclean = sum(not run.get("clean", True) for run in runs)
    print(f"{alarms} false alarms in {len(runs)} runs, {unclean} not clean")
    return 1 if alarms or unclean or not runs else 0


@contextlib.contextmanager
def others(endpoint: Endpoint) -> Iterator[None]:
    """Let other clients send requests during the block; their errors are ignored."""
    over = threading.Event()

    def ask(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - lengths and pauses, no secrets
        while not over.wait(chance.uniform(0, PAUSE_S)):
            body = {
                "messages": [{"role": "user", "content": f"Tell me of number {chance.random()}."}],
                "max_tokens": chance.randint(*TOKENS),
                "ignore_eos": True,
            }
            with contextlib.suppress(httpx.HTTPError):
                http.post(endpoint, http.CHAT, body)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    sys.exit(main())
