"""A server that computes something else than a trusted run is detected.

Each fault is in the server: its checkpoint and its flags are the same.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from e2e import gates, own_lane

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.checkpoints.resolve import resolve
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.machine import cpu_flags

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.real, pytest.mark.slow]

NUMERICS = ("-m", "boot or numerics")
TEST = "test_scores_are_those_of_the_trusted_run"
LANE = "silent"
HERE = Path(__file__).parent
PROGRAM = HERE / "serving_program.py"
BENCHMARKS = HERE.parents[1] / "benchmarks"
CHANGES_WEIGHTS = BENCHMARKS / "rounded_weights.py"
SILENT = BENCHMARKS / "silent"
ALIKE = "in every token alike"
POSITIONS = "positions, or the KV cache"


@dataclass(frozen=True)
class Silent:
    """An unrequested change in a server."""

    name: str
    model: str
    looks: str
    number: tuple[str, float, float] | None = None
    """A name of `config.json`, its factor, and the added value."""
    weights: str = ""
    """How `benchmarks/rounded_weights.py` changes them."""
    flags: str = ""
    silent: str = ""
    """The change of `benchmarks/silent/sitecustomize.py` in the server's processes."""
    seen_by_tolerances: bool = False
    """Whether a test with fixed tolerances fails, too."""


FAULTS = (
    Silent("positions", "qwen3.5", POSITIONS, number=("rope_theta", 0.99, 0)),
    Silent("fp8_cache", "qwen3.5", ALIKE, flags="--kv-cache-dtype fp8"),
    Silent("fp8_weights", "qwen3.5", ALIKE, weights="fp8"),
    Silent("int8_weights", "qwen3.5", ALIKE, weights="int8"),
    Silent("one_head", "qwen3.5", "", weights="head"),
    Silent("experts", "glm", "", weights="experts", seen_by_tolerances=True),
    Silent("window", "gemma", "from a position on", number=("sliding_window", 1, -1)),
    Silent("one_layers_epsilon", "qwen3.5", ALIKE, silent="epsilon=100"),
    Silent("company", "qwen3.5", "only in a batch", silent="company"),
    Silent(
        "rare_tokens", "qwen3.5", "on rare tokens above all", silent="rare", seen_by_tolerances=True
    ),
)


def judged(run: gates.GatesRun) -> dict[str, dict[str, Any]]:
    """Return the tests of the numerics gate by their names."""
    (family,) = run.verdict["families"]
    (gate,) = [gate for gate in family["gates"] if gate["gate"] == "numerics"]
    return {test["test"].partition("[")[0]: test for test in gate["tests"]}


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the project with a golden of a family's healthy server."""
    folders: dict[str, Path] = {}

    def of(model: str) -> Path:
        if model not in folders:
            folders[model] = tmp_path_factory.mktemp("trusted")
            recorded = gates.run(folders[model], *NUMERICS, "--update-golden", model=model)
            assert judged(recorded)[TEST]["outcome"] == "PASS", recorded.output
        return folders[model]

    return of


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_silent_change_is_found_and_named(
    fault: Silent, trusted: Callable[[str], Path], tmp_path: Path
) -> None:
    if "fp8" in fault.flags and cpu_flags.WIDE not in cpu_flags.flags():
        pytest.skip("vLLM refuses an FP8 cache on a CPU without AVX512 (cpu_attn.py of 0.32.0)")
    project = trusted(fault.model)
    checkpoint = resolve(families.load(fault.model, project), "miniature")
    env = {"FAULT_FLAGS": fault.flags, "FAULT_INSTEAD_OF": checkpoint.source}
    env["FAULT_CHECKPOINT"] = str(served_checkpoint(fault, Path(checkpoint.source), tmp_path))
    if fault.silent:
        env |= {"PYTHONPATH": str(SILENT), "SILENT_CHANGE": fault.silent}
    start = {"server": [str(PROGRAM)]}
    own_lane.write(project, LANE, env=env, start=start)
    run = gates.run(project, "--lane", LANE, *NUMERICS, model=fault.model)
    outcomes = {name: test["outcome"] for name, test in judged(run).items()}
    assert outcomes.pop(TEST) == "FAIL", run.output
    assert ("FAIL" in outcomes.values()) is fault.seen_by_tolerances, outcomes
    reason = judged(run)[TEST]["reason"]
    assert "the server does not compute the same as the trusted run" in reason
    assert fault.looks in reason


def test_the_same_again_is_equivalent(trusted: Callable[[str], Path]) -> None:
    run = gates.run(trusted(gates.MODEL), *NUMERICS)
    assert judged(run)[TEST]["outcome"] == "PASS", run.output


@pytest.mark.skipif(
    cpu_flags.WIDE not in cpu_flags.flags(),
    reason="the imitated machine has this one's kernels: neither has AVX512",
)
def test_another_machines_scale_is_measured_and_then_harmless(
    trusted: Callable[[str], Path], tmp_path: Path
) -> None:
    project = shutil.copytree(trusted(gates.MODEL), tmp_path / "project")
    golden = next(project.rglob("trusted-run.txt"))
    text = golden.read_text(encoding="utf-8")
    golden.write_text(re.sub(r"\nmachine .*", "\nmachine another, 64 cores", text))
    env = {"PYTHONPATH": str(SILENT), "SILENT_CHANGE": "avx2"}
    own_lane.write(project, LANE, env=env)
    first = judged(gates.run(project, "--lane", LANE, *NUMERICS))[TEST]
    assert first["outcome"] == "INCONCLUSIVE"
    _, found, table = first["reason"].partition("[numerics.other_machine.")
    assert found, first["reason"]
    lane = project / "lanes" / f"{LANE}.toml"
    lane.write_text(f"{lane.read_text(encoding='utf-8')}\n{found}{table}\n", encoding="utf-8")
    second = judged(gates.run(project, "--lane", LANE, *NUMERICS))[TEST]
    assert second["outcome"] == "PASS", second["reason"]


def test_shipped_run_of_another_machine_does_not_apply_beside_other_kernels(tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(SILENT), "SILENT_CHANGE": "avx2"}
    own_lane.write(tmp_path, LANE, env=env)
    test = judged(gates.run(tmp_path, "--lane", LANE, *NUMERICS, model="llama"))[TEST]
    assert test["outcome"] == "N/A", test["reason"]
    assert "the trusted run that ships is from another machine" in test["reason"]
    assert "--update-golden" in test["reason"]


def test_two_releases_are_equivalent(tmp_path: Path) -> None:
    run = gates.run(tmp_path, "--against", "cpu-previous", *NUMERICS)
    test = judged(run)[TEST]
    assert test["outcome"] == "PASS", run.output
    assert {each["answer"] for each in test["evidence"]["comparisons"]} == {"equivalent"}


def test_precision_that_is_declared_is_not_compared(
    trusted: Callable[[str], Path], tmp_path: Path
) -> None:
    project = shutil.copytree(trusted(gates.MODEL), tmp_path / "project")
    golden = next(project.rglob("trusted-run.txt"))
    text = golden.read_text(encoding="utf-8")
    golden.write_text(text.replace("\nmachine ", "\ndeclared dtype float32\nmachine ", 1))
    test = judged(gates.run(project, *NUMERICS))[TEST]
    assert test["outcome"] == "N/A"
    assert "dtype was float32 and is not given" in test["reason"]


def served_checkpoint(fault: Silent, source: Path, folder: Path) -> Path:
    """Return a copy of the checkpoint with the fault in it."""
    copy = shutil.copytree(source, folder / "spoiled")
    config = copy / "config.json"
    content = json.loads(config.read_text(encoding="utf-8"))
    if fault.number:
        assert changed(content, *fault.number)
    config.write_text(json.dumps(content), encoding="utf-8")
    if fault.weights:
        lane = lanes.load("cpu", folder)
        ready = environment.prepare(lane, cache=files.default_cache(), progress=print)
        argv = [str(ready.python), str(CHANGES_WEIGHTS), str(copy), fault.weights]
        subprocess.run(argv, check=True)
    return copy


def changed(table: dict[str, Any], name: str, factor: float, more: float) -> int:
    """Change every number of this name, at any depth; return how many there were."""
    found = 0
    for key, value in table.items():
        if isinstance(value, dict):
            found += changed(value, name, factor, more)
        elif key == name:
            table[key] = value * factor + more
            found += 1
    return found
