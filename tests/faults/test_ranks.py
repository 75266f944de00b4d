"""Ranks that do not work together are named before anything boots on them: real torchrun, gloo."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from e2e import gates, own_lane

from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.process.guard import parents

pytestmark = [pytest.mark.real, pytest.mark.alone]

OVERLAY = Path(__file__).parent / "ranks"
# Longer than the import of torch takes on a slow, idle machine.
STALL_S = 12.0
LIMIT_S = 4 * STALL_S
RANKS = ("allreduce", "--lane", "ranks", "--ranks", "2", "--stall-timeout", str(STALL_S))
NO_INTERFACE = {"GLOO_SOCKET_IFNAME": "nonexistent0"}


@dataclass(frozen=True)
class Fault:
    """One rank of two, spoiled, and the expected message."""

    name: str
    told: str


FAULTS = [
    Fault(
        "never-comes",
        r"hangs \(after \d+ s, \d+ s without a step\): rank 1 of 2 never came to the rendezvous: "
        r"rank 1 has been in the import of torch for \d+ s, and is stopped "
        r"\(SIGSTOP, or a debugger\); rank 0 has been in the rendezvous for \d+ s",
    ),
    Fault(
        "stops",
        r"all ranks of this machine are at the same place: rank 0 has been in the all-reduce "
        r"of 8 KiB for \d+ s; rank 1 has been in the all-reduce of 8 KiB for \d+ s, and is stopped",
    ),
    Fault("is-killed", r"rank 1 of 2 ended in the all-reduce of 8 KiB by SIGKILL"),
    Fault(
        "is-left-out",
        r"sums wrongly: rank 0 has 1 in place of 3 at element 0 of 8 KiB \(2048 elements are "
        r"wrong\), as if the part of rank 1 were missing",
    ),
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lane(project: Path, env: dict[str, str], overlay: Path | None = None) -> None:
    """Write a lane of two ranks; with an overlay in place of the shipped one."""
    bind = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    own_lane.write(project, "ranks", env=bind | env, serve={"tensor_parallel_size": 2})
    if overlay:
        file = project / "lanes" / "ranks.toml"
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace('"cpu-overlay"', json.dumps(str(overlay))), encoding="utf-8")


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_faulty_rank_is_named_within_the_limit(
    fault: Fault, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lane(project, {"RANK_FAULT": fault.name}, OVERLAY)
    assert main([*RANKS, "--json"]) == 1
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["state"] == "fails"
    assert re.search(fault.told, report["why"]), report["why"]
    assert report["took_s"] < LIMIT_S
    assert not _left(report["command"][-1]), "a rank outlived its all-reduce"


def _left(marker: str) -> list[int]:
    """Return the processes that were started with these words."""
    lines = {pid: Path(f"/proc/{pid}/cmdline") for pid in parents()}
    return [pid for pid, file in lines.items() if file.exists() and marker in file.read_text()]


def test_nonexistent_interface_is_named_with_a_fix(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lane(project, NO_INTERFACE)
    assert main(list(RANKS)) == 1
    output = capsys.readouterr().out
    assert re.search(r"rank \d of 2 ended in the rendezvous: RuntimeError: ", output)
    assert "NCCL_IFACE" in output
    assert "nonexistent0" in output
    assert "GLOO_SOCKET_IFNAME=eth0" in output


def test_named_interface_is_used(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lane(project, {"GLOO_SOCKET_IFNAME": "lo"})
    assert main([*RANKS, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["interfaces"] == ["lo 127.0.0.1"]
    assert report["backend"] == "gloo"
    assert [each["bytes"] for each in report["sizes"]] == [2**13, 2**20, 2**24, 2**26]
    for size in report["sizes"]:  # two ranks: the bus carries the same bytes that are summed
        assert (
            size["busbw"] == pytest.approx(size["algbw"]) == size["bytes"] / size["round_s"] / 1e9
        )


def test_server_does_not_boot_if_ranks_cannot_communicate(project: Path) -> None:
    lane(project, NO_INTERFACE)
    ran = gates.run(project, "--lane", "ranks", "-m", "boot or streaming")
    assert ran.status == 1
    assert ran.outcomes() == {"boot": "FAIL", "streaming": "BLOCKED"}, ran.output
    words = ran.reasons("boot")
    assert "the all-reduce over 2 ranks failed: rank" in words
    assert "NCCL_IFACE" in words
    assert "next: vllm-gates allreduce --lane ranks --ranks 2" in words
    (family,) = ran.verdict["families"]
    assert family["boot"]["evidence"]["all_reduce"]["state"] == "fails"
    assert not (project / "report" / gates.MODEL / "server.log").exists(), "a server was started"
