"""Compares the time of a Ray cluster of two workers for all families with one run.

    pip install ray
    python benchmarks/fleet_ray.py
    python benchmarks/fleet_ray.py --families llama,phi --gates boot

The workers are two nodes on this machine, each with half of its cores. First one run judges every
family, one after the other; then Ray runs the same plan; the verdicts have to be equal. Exits 1 if
Ray takes more than 0.65 of the time on four cores or more, 2 if the verdicts differ. With fewer
cores two servers share the cores of one: the ratio shows the gain.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

GATES = "boot,chat_template,streaming"
LIMIT = 0.65
WORKERS = 2
CORES = 4
"""Two for each server; the limit is for machines that have them."""
STARTED_S = 120.0
DIFFERENT = 2
BIN = Path(sys.executable).parent


def serial(folder: Path, families: str, gates: str) -> tuple[float, dict[str, Any]]:
    """Judge the families in one run; return its seconds and its verdict."""
    words = ["--model", families, "-m", gates.replace(",", " or "), "--gates-report=report", "-q"]
    began = time.monotonic()
    _run([BIN / "pytest", "--rootdir=.", *words], folder)
    return time.monotonic() - began, _read(folder / "report" / "verdict.json")


def fleet(folder: Path, families: str, gates: str) -> tuple[float, dict[str, Any]]:
    """Run the plan on a cluster of two workers; return the seconds and the merged verdict."""
    words = ["--gates", gates, "--as", "ray", "--cpus", "1"]
    if families != "all":
        words += ["--families", families]
    _run([BIN / "vllm-gates", "matrix", *words], folder, check=True)
    with cluster(folder) as address:
        began = time.monotonic()
        _run([sys.executable, "fleet_ray.py"], folder, RAY_ADDRESS=address)
        took_s = time.monotonic() - began
    return took_s, _read(folder / "fleet-report" / "fleet-verdict.json")


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Start two nodes, each on its half of the cores; yield the address."""
    cores = sorted(os.sched_getaffinity(0))
    half = max(len(cores) // WORKERS, 1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    head = ["--head", f"--port={address.rpartition(':')[2]}", "--include-dashboard=false"]
    nodes: list[subprocess.Popen[bytes]] = []
    try:
        for number, where in enumerate((head, [f"--address={address}"])):
            own = cores[number * half : (number + 1) * half] or cores
            words = [*where, "--node-ip-address=127.0.0.1", "--num-cpus=1", "--block"]
            nodes.append(_node(folder / f"node-{number}.log", words, own))
            _wait(address, number + 1)
        yield address
    finally:
        for node in reversed(nodes):
            os.killpg(node.pid, signal.SIGTERM)
            node.wait()


def _node(log: Path, words: Sequence[str], cores: Sequence[int]) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen(
            ["taskset", "-c", ",".join(map(str, cores)), BIN / "ray", "start", *words],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        )  # fmt: skip


def _wait(address: str, count: int) -> None:
    code = (
        "import ray, sys; ray.init(address=sys.argv[1], logging_level='error'); "
        "sys.exit(len([node for node in ray.nodes() if node['Alive']]) < int(sys.argv[2]))"
    )
    until = time.monotonic() + STARTED_S
    while subprocess.run(
        [sys.executable, "-c", code, address, str(count)], capture_output=True, check=False
    ).returncode:
        if time.monotonic() > until:
            raise SystemExit(f"Ray's node {count} did not start; see its log")
        time.sleep(1)


def _run(argv: Sequence[str | Path], folder: Path, *, check: bool = False, **more: str) -> None:
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **more}
    done = subprocess.run(
        list(map(str, argv)), cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    if check and done.returncode:
        raise SystemExit(done.stderr or done.stdout)


def _read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def main() -> int:
    """Measure both, and compare times and verdicts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--families", default="all")
    parser.add_argument("--gates", default=GATES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        one_s, one = serial(folder, options.families, options.gates)
        ray_s, merged = fleet(folder, options.families, options.gates)
    wanted = {family["name"]: _judged(family["gates"]) for family in one["families"]}
    found = {
        cell["family"]: _judged([{"gate": gate, **told} for gate, told in cell["gates"].items()])
        for cell in merged["cells"]
    }
    cores = len(os.sched_getaffinity(0))
    print(
        f"{len(wanted)} families, gates {options.gates}, {cores} cores: "
        f"one after the other {one_s:.0f} s, Ray with {WORKERS} workers {ray_s:.0f} s: "
        f"{ray_s / one_s:.2f} (at most {LIMIT} with {CORES} cores)"
    )
    if differ := sorted(name for name in wanted if wanted[name] != found.get(name)):
        for name in differ:
            print(f"{name}: {wanted[name]} in one run, {found.get(name)} on Ray")
        return DIFFERENT
    print("the verdicts are equal")
    return int(cores >= CORES and ray_s > LIMIT * one_s)


def _judged(gates: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the outcomes by gate; only one of the two runs lists gates that do not apply."""
    return {gate["gate"]: gate["outcome"] for gate in gates if gate["outcome"] != "N/A"}


if __name__ == "__main__":
    sys.exit(main())
