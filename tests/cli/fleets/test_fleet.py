"""`vllm-gates matrix`, `shard` and `merge`, as they are typed one after the other."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fleet.made_fleets import verdict

from pytest_vllm_gates.bisection import gates_run
from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.fleet import shards

if TYPE_CHECKING:
    from collections.abc import Callable

    Captured = pytest.CaptureFixture[str]

MATRIX = ["matrix", "--families", "qwen3.5,gemma", "--gates", "boot,stop"]


@pytest.fixture(name="project", autouse=True)
def project_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(name="outcomes")
def outcomes_fixture(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str] | None]:
    """Stand in for pytest: each shard's outcomes by gate, None for a shard without a verdict."""
    outcomes: dict[str, dict[str, str] | None] = {}

    def ran(
        arguments: list[str], *, project: Path, folder: Path, say: Callable[[str], None], name: str
    ) -> tuple[int, dict[str, Any] | None]:
        del project, say
        shard = shards.read(Path("fleet.json")).shard(name)
        assert arguments == shard.arguments
        if (wanted := outcomes.get(name, {})) is None:
            return 3, None
        document = verdict(shard, wanted)
        (folder / "verdict.json").write_text(json.dumps(document))
        return 0, document

    monkeypatch.setattr(gates_run, "run", ran)
    return outcomes


def test_shards_are_planned_run_and_merged(
    outcomes: dict[str, dict[str, str] | None], project: Path, capsys: Captured
) -> None:
    assert main(MATRIX) == 0
    assert capsys.readouterr().out == (
        "qwen3-5-cpu: 2 min: boot, stop\ngemma-cpu: 2 min: boot, stop\n"
    )
    assert main(["shard", "fleet.json", "0", "gemma-cpu"]) == 0
    # A shard runs some of the gates, so that its own answer is HOLD: it is not shown.
    assert "HOLD" not in (printed := capsys.readouterr().out)
    assert f"gemma-cpu: its verdict is in {project / 'shards' / 'gemma-cpu'}\n" in printed
    assert main(["merge", "shards", "--report", "out"]) == 0
    assert capsys.readouterr().out.endswith("| gemma | [PASS](shards/gemma-cpu/report.html) |\n")
    document = json.loads((project / "out" / "fleet-verdict.json").read_text())
    assert document["promotion"] == "PROMOTE"
    assert "[PASS](../shards/gemma-cpu/report.html)" in (project / "out" / "fleet.md").read_text()
    outcomes["gemma-cpu"] = {"stop": "FAIL"}
    assert main(["shard", "fleet.json", "gemma-cpu"]) == 0
    assert main(["merge", "shards"]) == 1


def test_shard_without_a_verdict_is_named_with_the_command_for_it(
    outcomes: dict[str, dict[str, str] | None], capsys: Captured
) -> None:
    main(MATRIX)
    outcomes["gemma-cpu"] = None
    assert main(["shard", "fleet.json", "gemma-cpu", "qwen3-5-cpu"]) == 3
    assert "gemma-cpu: no verdict: pytest ended with 3; see " in capsys.readouterr().err
    assert main(["merge", "shards"]) == 6
    printed = capsys.readouterr().out
    assert printed.startswith("# HOLD: 2 shards\n")
    command = "vllm-gates shard fleet.json gemma-cpu --reports shards"
    assert f"    {command}\n" in printed
    outcomes["gemma-cpu"] = {}
    assert main(command.split()[1:]) == 0
    assert main(["merge", "shards", "--json"]) == 0


def test_matrix_writes_the_files_of_an_engine(project: Path, capsys: Captured) -> None:
    assert main([*MATRIX, "--as", "slurm", "--out", "ci"]) == 0
    assert "written: ci/fleet.sbatch" in capsys.readouterr().err
    assert "\n  qwen3-5-cpu\n  gemma-cpu\n" in (project / "ci" / "fleet.sbatch").read_text()


def test_recorded_times_cut_the_shards(
    outcomes: dict[str, dict[str, str] | None], capsys: Captured
) -> None:
    del outcomes
    main(MATRIX)
    main(["shard", "fleet.json", "0", "1"])
    capsys.readouterr()
    assert main([*MATRIX, "--recorded", "shards", "--shard-minutes", "0.55"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == "qwen3-5-cpu-1: 1 min: boot"
    assert "4 shards, 2 minutes one after the other" in printed.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["matrix", "--gates", "stopp"], "stopp"),
        (["matrix", "--families", "nobody"], "nobody"),
        (["matrix", "--lanes", "nowhere"], "nowhere"),
        (["matrix", "--features", "ngram+lorra"], "lorra"),
        (["matrix", "--recorded", "."], "no verdict.json in it or below it"),
        ([*MATRIX, "--plan", "/tmp/fleet.json", "--as", "loop"], "name it from there"),  # noqa: S108
        (["shard", "fleet.json", "0"], "fleet.json"),
        (["merge", "nowhere"], "fleet.json"),
    ],
)
def test_invalid_options_are_refused(words: list[str], says: str, capsys: Captured) -> None:
    assert main(words) == 2
    assert says in capsys.readouterr().err


def test_another_version_does_not_run_a_shard(project: Path, capsys: Captured) -> None:
    main(MATRIX)
    plan = shards.read(project / "fleet.json")
    shards.write(project / "fleet.json", shards.FleetPlan(plan.shards, "0.0.1"))
    assert main(["shard", "fleet.json", "0"]) == 2
    assert "version 0.0.1 of pytest-vllm-gates planned it" in capsys.readouterr().err


def test_part_of_the_cores_is_kept_to(
    outcomes: dict[str, dict[str, str] | None], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    del outcomes
    kept: list[list[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4, 1, 7})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: kept.append(cores))
    main(MATRIX)
    for part in ("1/1", "1/2", "2/2", "3/3"):
        assert main(["shard", "fleet.json", "0", "--part", part]) == 0
    assert kept == [[1, 4, 7], [1], [4, 7], [7]]
    assert main(["shard", "fleet.json", "0", "--part", "1/4"]) == 2
    assert "3 cores are too few for 4 parts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["shard", "fleet.json", "0", "--part", "3/2"], "like 1/2 or 2/2, got 3/2"),
        (["shard", "fleet.json", "0", "--part", "half"], "like 1/2 or 2/2, got half"),
        (["matrix", "--cpus", "0"], "expected an integer >= 1, got 0"),
        (["matrix", "--shard-minutes", "nan"], "expected minutes above 0, got nan"),
    ],
)
def test_invalid_value_is_refused(words: list[str], says: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert says in capsys.readouterr().err


def test_sets_of_features_are_shards_of_their_own(capsys: Captured) -> None:
    words = ["matrix", "--families", "qwen3.5", "--gates", "stop,features"]
    assert main([*words, "--features", "ngram,prefix-caching+ngram,pairs"]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "qwen3-5-cpu",
        "qwen3-5-cpu-ngram",
        "qwen3-5-cpu-prefix-caching-ngram",
        "qwen3-5-cpu-pairs",
    ]
