"""A failing preflight check fails the boot gate with a fix, before anything boots."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from machines import put_in_place

from pytest_vllm_gates.checkpoints import miniatures

if TYPE_CHECKING:
    import pytest

    from conftest import Project

ARGUMENTS = ("--model", "qwen3.5", "--lane", "fake", "--gates-report", "out")


def test_failing_preflight_check_prevents_the_boot(project: Project) -> None:
    project.lane(more="\n[serve]\ntensor_parallel_size = 3\n")
    result = project.pytest(*ARGUMENTS)
    assert result.ret == 1
    outcomes = project.outcomes()
    assert outcomes.pop("boot::test_boots[]") == "FAIL"
    assert outcomes.pop("boot::test_leaves_nothing_behind[]") == "N/A"
    assert set(outcomes.values()) == {"BLOCKED"}
    output = result.stdout.str()
    assert "qwen3.5 cannot boot on lane fake" in output
    assert (
        "Total number of attention heads (2) must be divisible by tensor parallel size (3)"
        in output
    )
    assert "fix: tensor_parallel_size = 2 in [serve]" in output
    assert "next: vllm-gates preflight --model qwen3.5 --checkpoint miniature --lane fake" in output
    (family,) = project.verdict()["families"]
    checks = {check["name"]: check["state"] for check in family["boot"]["evidence"]["preflight"]}
    assert checks["attention_heads"] == "fails"
    assert not project.key_file.exists(), "a server was started"


def test_folder_without_weights_blocks_the_gates_that_need_them(project: Project) -> None:
    unlike = shutil.ignore_patterns("*.safetensors")
    shutil.copytree(miniatures.path("qwen3.5"), project.path / "tokenizer", ignore=unlike)
    arguments = ("--model", "./tokenizer", "--lane", "fake", "--gates-report", "out")
    result = project.pytest(*arguments, "-m", "boot or tools")
    assert result.ret == 1
    outcomes = project.outcomes()
    assert outcomes.pop("boot::test_boots[]") == "FAIL"
    assert set(outcomes.values()) == {"BLOCKED", "N/A"}
    output = result.stdout.str()
    assert "qwen3.5 cannot boot on lane fake: " in output
    assert "tokenizer: it has no weights: no *.safetensors" in output
    assert "-m chat_template" in output


def test_absurd_flags_are_explained(project: Project) -> None:
    project.lane(more='\n[serve]\ntensor_parallel_size = "many"\n')
    result = project.pytest(*ARGUMENTS)
    assert result.ret == 1
    assert "tensor_parallel_size = 'many' is not a positive integer" in result.stdout.str()


def test_unknown_preflight_check_does_not_prevent_the_boot(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_place(project.path / "bin", monkeypatch, "gb10")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    assert project.gates("-k", "boots").ret == 0
    verdict = project.verdict()
    (family,) = verdict["families"]
    checks = family["boot"]["evidence"]["preflight"]
    assert {check["state"] for check in checks} == {"ok", "unknown", "n/a"}
    machine = verdict["machine"]
    assert machine["gpus"] == ["NVIDIA GB10"]
    assert machine["devices"][0]["unified"] is True
    assert machine["driver"]["version"] == "580.95.05"
    assert machine["environment"]["NCCL_DEBUG"] == "INFO"
    assert machine["environment"]["HF_TOKEN"] == "[redacted]"
    assert "hf_secret" not in (project.report / "verdict.json").read_text()


def test_attached_server_has_no_preflight(project: Project) -> None:
    project.lane()
    project.write("lanes/fake.toml", 'title = "x"\nbase_url = "http://127.0.0.1:9/v1"\n')
    project.pytest(*ARGUMENTS)
    (family,) = project.verdict()["families"]
    assert "preflight" not in family["boot"]["evidence"]
