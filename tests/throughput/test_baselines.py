"""Baselines are pytest-benchmark's files; they apply to their conditions, and broken ones fail."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.catalog.lane import Lane
from pytest_vllm_gates.catalog.plans import Block, BlockGroup, Pair, Scatter, planned_throughput
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.machine.types import Machine
from pytest_vllm_gates.throughput.baselines import OURS, Baselines
from pytest_vllm_gates.throughput.conditions import conditions, machine_name

if TYPE_CHECKING:
    from pytest_vllm_gates.throughput.conditions import Conditions

MACHINE = Machine("Linux", "3.11", "A Processor 9000 @ 3 GHz", 2, 24 * 2**30, ())
LANE = Lane(name="cpu", file=Path("cpu.toml"), title="x", command=("x",), env={"A": "1"})
SCATTER = Scatter(output_tokens_per_s=0.0123, ttft_s=0.05, itl_s=0.02)
BLOCKS = [
    Block("b-0", 0.0, 0.5, 256, 0.1, 0.01, speed=900.0),
    Block("b-1", 1.0, 0.4, 256, 0.1, 0.01),
]


def now(machine: Machine = MACHINE, **more: Any) -> Conditions:
    arguments: dict[str, Any] = {
        "lane": LANE,
        "checkpoint": Checkpoint("miniature", "org/model", "abc"),
        "serve": {"enforce_eager": True},
        "plan": planned_throughput(),
    }
    return conditions(machine=machine, family="qwen3.5", **(arguments | more))


def at(folder: Path, current: Conditions | None = None, **versions: str) -> Baselines:
    return Baselines(folder, current or now(), versions or {"vllm": "0.32.0"}, "pytest --record")


def test_recorded_boot_is_read_back(tmp_path: Path) -> None:
    path = at(tmp_path).record(BLOCKS, {"gpus": []})
    assert path == tmp_path / "a-processor-9000-3-ghz-2-cores" / "0001_qwen3.5-miniature-cpu.json"
    (recorded,), differ = at(tmp_path).recorded()
    assert (recorded.path, list(recorded.blocks), differ) == (path, BLOCKS, [])


def test_newest_recorded_versions_count(tmp_path: Path) -> None:
    at(tmp_path, vllm="0.30.0").record(BLOCKS, {})
    assert len(at(tmp_path, vllm="0.32.0").recorded()[0]) == 1
    for _ in range(2):
        at(tmp_path, vllm="0.31.0").record(BLOCKS, {})
    recorded_boots, _ = at(tmp_path, vllm="0.32.0").recorded()
    assert [recorded.versions for recorded in recorded_boots] == [{"vllm": "0.31.0"}] * 2
    assert [recorded.path.name[:4] for recorded in recorded_boots] == ["0002", "0003"]


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"machine": dataclasses.replace(MACHINE, cores=4)}, "machine.cores was 2 and is 4"),
        (
            {"serve": {"enforce_eager": False}},
            "flags.enforce_eager was True and is False",
        ),
        ({"plan": planned_throughput({"requests": 9})}, "work.requests was 64 and is 9"),
        (
            {"checkpoint": Checkpoint("miniature", "org/model", "def")},
            "model.revision was abc and is def",
        ),
        ({"lane": LANE.model_copy(update={"env": {}})}, "flags.$A was 1 and is not given"),
    ],
)
def test_boots_under_other_conditions_are_not_compared(
    tmp_path: Path, changes: dict[str, Any], difference: str
) -> None:
    at(tmp_path).record(BLOCKS, {})
    assert at(tmp_path, now(**changes)).recorded() == ([], [difference])


def test_machine_name_comes_from_its_gpus_or_address() -> None:
    gpus = dataclasses.replace(MACHINE, gpus=("NVIDIA H100 80GB HBM3",) * 2)
    assert machine_name(now(gpus)) == "2x-nvidia-h100-80gb-hbm3"
    elsewhere = LANE.model_copy(update={"command": None, "base_url": "http://gpu7:8000/v1"})
    assert machine_name(now(lane=elsewhere)) == "gpu7-8000"


def test_weights_are_identified_by_content_not_path(tmp_path: Path) -> None:
    weights = []
    for name in ("here", "there", "other"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text("{}" if name != "other" else "{ }", encoding="utf-8")
        (folder / "model.safetensors").write_bytes(b"1234")
        weights.append(now(checkpoint=Checkpoint("mine", str(folder))).model["weights"])
    assert weights[0] == weights[1] != weights[2]


def spoilt(tmp_path: Path, change: Any) -> Path:
    path = at(tmp_path).record(BLOCKS, {})
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document["benchmarks"][0]["extra_info"][OURS])
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_truncated_file_is_refused_with_restore_command(tmp_path: Path) -> None:
    path = at(tmp_path).record(BLOCKS, {})
    path.write_text(path.read_text(encoding="utf-8")[:-50], encoding="utf-8")
    with pytest.raises(UserError, match=r"corrupt.*\n.*git checkout -- 0001_.*pytest --record"):
        at(tmp_path).recorded()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda payload: payload.update(format=2), "has format 2, but this release reads 1"),
        (lambda payload: payload.pop("blocks"), "corrupt: 'blocks'"),
        (lambda payload: payload.update(blocks=[]), "it has no blocks"),
        (lambda payload: payload["blocks"][0].update(took_s=0.0), "took no time"),
        (lambda payload: payload["blocks"][0].update(took_s="long"), "corrupt: 1 validation error"),
        (lambda payload: payload.clear(), "it has no 'vllm_gates' data"),
    ],
)
def test_foreign_file_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    spoilt(tmp_path, change)
    with pytest.raises(UserError, match=message):
        at(tmp_path).recorded()


@pytest.mark.parametrize("content", ["[]", '{"benchmarks": []}', '{"benchmarks": [3]}', "nonsense"])
def test_any_other_json_is_refused(tmp_path: Path, content: str) -> None:
    at(tmp_path).record(BLOCKS, {}).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match="is corrupt"):
        at(tmp_path).recorded()


def test_pytest_benchmark_reads_baselines(tmp_path: Path) -> None:
    at(tmp_path).record(BLOCKS, {})
    done = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", "--storage", str(tmp_path), "compare"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "block[qwen3.5]" in done.stdout


def test_a_calibration_is_kept_for_its_conditions(tmp_path: Path) -> None:
    pair = Pair((BlockGroup((BLOCKS[0], BLOCKS[1]), (BLOCKS[1], BLOCKS[0])),))
    assert at(tmp_path).calibration() is None
    path = at(tmp_path).calibrate(SCATTER, [pair] * 5)
    calibration = at(tmp_path).calibration()
    assert calibration
    assert (calibration.pair_sd, calibration.pairs) == (SCATTER, 5)
    assert at(tmp_path, now(plan=planned_throughput({"requests": 9}))).calibration() is None
    assert at(tmp_path).recorded() == ([], [])
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match="corrupt"):
        at(tmp_path).calibration()


def test_store_lies_under_the_projects_own(tmp_path: Path) -> None:
    """A container without its own baselines uses the baselines of a store, unchanged."""
    own, stored = tmp_path / "own", tmp_path / "store"
    path = at(stored).record(BLOCKS, {})
    under = dataclasses.replace(at(own), store=stored)
    assert [boot.path for boot in under.recorded()[0]] == [path]
    here = under.record(BLOCKS, {})
    assert here.is_relative_to(own)
    assert [boot.path for boot in under.recorded()[0]] == [here]
    assert [file for file in stored.rglob("*") if file.is_file()] == [path]
    other = dataclasses.replace(at(own, now(serve={})), store=stored)
    assert other.recorded() == ([], ["flags.enforce_eager was True and is not given"])


def test_calibration_of_a_store_is_read(tmp_path: Path) -> None:
    own, stored = tmp_path / "own", tmp_path / "store"
    group = BlockGroup((BLOCKS[0], BLOCKS[1]), (BLOCKS[1], BLOCKS[0]))
    at(stored).calibrate(SCATTER, [Pair((group,))])
    assert at(own).calibration() is None
    found = dataclasses.replace(at(own), store=stored).calibration()
    assert found is not None
    assert found.pair_sd == SCATTER
