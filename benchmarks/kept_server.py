"""Measures how fast a run is that finds its server running (`--keep-server`).

    python benchmarks/kept_server.py --rounds 5

Boots a miniature on the CPU lane once, sends one captured request repeatedly (`--repro`), each time
in a new pytest process, and stops the server. Prints the time to attach (the checks that the server
is ours and answers a chat) and the time of the whole run, as medians of all rounds, and exits 1 if
either exceeds its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ATTACH_LIMIT_S = 1.0
RUN_LIMIT_S = 3.0
BODY = {
    "model": "any",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "max_tokens": 50,
}
GATES = [sys.executable, "-c", "from pytest_vllm_gates.cli.main import main; main()"]


def incident(folder: Path, model: str) -> Path:
    """Make an incident from a request, as a user does from a curl command; return its folder."""
    curl = f"curl http://127.0.0.1/v1/chat/completions -d {shlex.quote(json.dumps(BODY))}"
    subprocess.run(
        [*GATES, "incident", "from", "-", "--kind", "curl", "--model", model, "--out", "incidents"],
        cwd=folder, input=curl, text=True, check=True, capture_output=True,
    )  # fmt: skip
    return next((folder / "incidents").iterdir())


def run(
    folder: Path, env: dict[str, str], incident_folder: Path
) -> tuple[float, dict[str, object]]:
    """Replay an incident; return its seconds in total and the facts of the server."""
    started = time.monotonic()
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "--repro", str(incident_folder), "--keep-server=5m",
         "--gates-report=report"],
        cwd=folder, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    taken_s = time.monotonic() - started
    if process.returncode:
        sys.exit(process.stdout + process.stderr)
    verdict = json.loads((folder / "report" / "verdict.json").read_text(encoding="utf-8"))
    return taken_s, verdict["families"][0]["boot"]["evidence"]["kept"]


def main() -> int:
    """Boot, attach `--rounds` times, and compare the medians with the limits."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default="qwen3.5")
    options = parser.parse_args()
    attached_s, runs_s = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = os.environ | {"XDG_STATE_HOME": str(folder / "state")}
        try:
            incident_folder = incident(folder, options.model)
            first_s, first_server = run(folder, env, incident_folder)
            print(f"the first run, with its boot: {first_s:.1f} s", flush=True)
            for _ in range(options.rounds):
                taken_s, server = run(folder, env, incident_folder)
                if not server["attached"] or server["name"] != first_server["name"]:
                    sys.exit(f"the server was not found again: {server}")
                attached_s.append(float(str(server["attach_s"])))
                runs_s.append(taken_s)
                print(f"attached in {attached_s[-1]:.3f} s, {taken_s:.2f} s in all", flush=True)
        finally:
            subprocess.run([*GATES, "servers", "stop", "--all"], env=env, check=False)
    attach_s, run_s = statistics.median(attached_s), statistics.median(runs_s)
    print(
        f"median of {options.rounds}: attached in {attach_s:.3f} s (at most {ATTACH_LIMIT_S}), "
        f"{run_s:.2f} s in all (at most {RUN_LIMIT_S}); load {os.getloadavg()[0]:.1f} on "
        f"{os.cpu_count()} cores"
    )
    return 0 if attach_s <= ATTACH_LIMIT_S and run_s <= RUN_LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
