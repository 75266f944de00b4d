"""The command and environment of the ranks, and their records and NCCL's log."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from pytest_vllm_gates.all_reduce import program
from pytest_vllm_gates.all_reduce.run import ENDED, Task, command, environment, read
from pytest_vllm_gates.all_reduce.types import Nodes, load
from pytest_vllm_gates.catalog.lane import Lane
from pytest_vllm_gates.diagnosis import explain, signature
from pytest_vllm_gates.server import startup

CAPTURED = Path(__file__).parent.parent / "recorded" / "all_reduce"
# As NCCL 2.21 and 2.27 write them, two ranks on one machine of two GPUs and one network card.
NCCL = """\
node1:4242:4242 [0] NCCL INFO Bootstrap: Using enp1s0f0np0:10.0.0.1<0>
node1:4242:4242 [0] NCCL INFO NCCL version 2.27.3+cuda12.9
node1:4243:4243 [1] NCCL INFO Bootstrap : Using enp1s0f0np0:10.0.0.1<0>
node1:4242:4270 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB enp1s0f0np0:10.0.0.1<0>
node1:4242:4270 [0] NCCL INFO Using network IB
node1:4243:4271 [1] NCCL INFO NET/Socket : Using [0]enp1s0f0np0:10.0.0.1<0> [1]eth1:10.1.0.1<0>
node1:4242:4270 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
node1:4242:4270 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM
node1:4243:4271 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [send] via NET/IB/0/GDRDMA
"""


def task(tmp_path: Path, **more: object) -> Task:
    lane = Lane(
        name="mine", file=tmp_path, title="t", python="/lane/bin/python",
        env={"GLOO_SOCKET_IFNAME": "eth7", "NCCL_DEBUG_FILE": "/elsewhere"},
    )  # fmt: skip
    values = {
        "lane": lane,
        "python": Path("/lane/bin/python"),
        "overlay": Path("/overlay"),
        "env": {"CUDA_VISIBLE_DEVICES": "2,3"},
        "backend": "nccl",
        "world": 2,
        "nodes": Nodes(),
        "folder": tmp_path,
        "plan": load(),
    }
    return Task(**(values | more))  # type: ignore[arg-type]


def test_ranks_get_the_servers_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/of/this/process")
    env = environment(task(tmp_path))
    assert env["GLOO_SOCKET_IFNAME"] == "eth7"
    assert env["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert env["PYTHONPATH"] == "/overlay"
    assert env["PATH"].startswith("/lane/bin:")
    assert env["NCCL_DEBUG"] == "INFO"
    assert "NCCL_DEBUG_FILE" not in env
    assert "VLLM_API_KEY" not in env


def test_torchrun_command_for_one_machine(tmp_path: Path) -> None:
    argv = command(task(tmp_path))
    assert argv[:3] == ["/lane/bin/python", "-m", "torch.distributed.run"]
    assert "--standalone" in argv
    assert "--nproc-per-node=2" in argv
    job = json.loads(Path(argv[-1]).read_text())
    assert job["backend"] == "nccl"
    assert job["sizes"][0] == 8192


def test_each_of_several_machines_starts_its_own_ranks(tmp_path: Path) -> None:
    second_machine = task(tmp_path, world=4, nodes=Nodes(2, 1, "10.0.0.1", 4000))
    argv = command(second_machine)
    assert "--standalone" not in argv
    for word in ("--nnodes=2", "--node-rank=1", "--master-addr=10.0.0.1", "--master-port=4000"):
        assert word in argv
    assert "--nproc-per-node=2" in argv
    assert [rank.number for rank in read(second_machine)] == [2, 3]


def test_nccl_log_has_version_interface_and_links() -> None:
    links = {pattern.name: startup.value(pattern, NCCL) for pattern in load().told}
    assert links == {
        "nccl": "2.27.3+cuda12.9",
        "bootstrap": "enp1s0f0np0:10.0.0.1",
        "sockets": "[0]enp1s0f0np0:10.0.0.1<0> [1]eth1:10.1.0.1<0>",
        "infiniband": "[0]mlx5_0:1/RoCE [RO]; OOB enp1s0f0np0:10.0.0.1<0>",
        "network": "IB",
        "links": "NET/IB, P2P/CUMEM",
    }


def test_machine_without_infiniband_reports_none() -> None:
    """NCCL 2.28.9 on an H100: "NET/IB : No device found.", and then "NET/IB : Using [RO]; …"."""
    log = (CAPTURED / "h100-one-rank" / "all_reduce.log").read_text()
    assert {pattern.name: startup.value(pattern, log) for pattern in load().told} == {
        "nccl": "2.28.9+cuda13.0",
        "bootstrap": "eth0:192.0.2.2",
        "sockets": "[0]eth0:192.0.2.2<0>",
        "infiniband": "",
        "network": "Socket",
        "links": "",
    }


def test_rank_without_a_gpu_is_named(tmp_path: Path) -> None:
    folder = CAPTURED / "h100-two-ranks"
    first, second = read(task(tmp_path, folder=folder))
    assert first.facts["device"] == "NVIDIA H100 80GB HBM3"
    assert first.steps[-1].name == "the first all-reduce"
    assert second.failed == "AcceleratorError: CUDA error: invalid device ordinal"
    log = (folder / "all_reduce.log").read_text()
    assert ENDED.findall(log) == [("1", "1")]
    explanation = explain.explain([log.encode()], signature.load_all(), 1)
    assert explanation.answer
    assert (explanation.answer.id, explanation.answer.confidence) == ("TP_GPU_COUNT", "certain")


def test_incomplete_line_of_a_rank_is_skipped(tmp_path: Path) -> None:
    diary = program.Diary(tmp_path, 1)
    diary.record(pid=7, host="h")
    diary.step("the rendezvous")
    diary.record(summed={"bytes": 4, "round_s": 0.5, "wrong": None})
    diary.record(failed="RuntimeError: x")
    with (tmp_path / "rank-1.jsonl").open("a") as file:
        file.write('{"step": "half a li')
    nothing, rank = read(task(tmp_path))
    assert nothing.steps == ()
    assert [step.name for step in rank.steps] == ["the rendezvous"]
    assert rank.summed[0].round_s == 0.5
    assert rank.failed == "RuntimeError: x"
    assert rank.facts == {"pid": 7, "host": "h"}


@pytest.mark.parametrize(
    ("words", "address"),
    [
        ("0100007F", "127.0.0.1"),
        ("020200C0", "192.0.2.2"),
        ("0000000000000000FFFF00000100007F", "127.0.0.1"),
        ("000000000000000000000000" + "01000000", "::1"),
    ],
)
def test_addresses_are_read_as_the_kernel_writes_them(words: str, address: str) -> None:
    assert str(program.address_of(words)) == address


def test_own_addresses_leave_out_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
            monkeypatch.setenv("MASTER_PORT", "1")
            assert "lo 127.0.0.1" in program.own_addresses()
            monkeypatch.setenv("MASTER_PORT", str(port))
            others = program.own_addresses()
        monkeypatch.setenv("MASTER_PORT", "1")
        assert program.own_addresses() == others


def test_every_interface_of_this_machine_has_its_name() -> None:
    assert program.interfaces()["127.0.0.1"] == "lo"
