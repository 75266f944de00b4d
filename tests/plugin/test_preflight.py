"""A run looks before it boots: what cannot boot fails the boot gate, with what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from machines import put_in_place

if TYPE_CHECKING:
    import pytest

    from conftest import Project

ARGUMENTS = ("--model", "qwen3.5", "--lane", "fake", "--gates-report", "out")


def test_what_cannot_boot_is_not_booted(project: Project) -> None:
    project.lane(more="\n[serve]\ntensor_parallel_size = 3\n")
    result = project.pytest(*ARGUMENTS)
    assert result.ret == 1
    outcomes = project.outcomes()
    assert outcomes.pop("boot::test_boots[]") == "FAIL"
    assert outcomes.pop("boot::test_leaves_nothing_behind[]") == "N/A"
    assert set(outcomes.values()) == {"BLOCKED"}
    told = result.stdout.str()
    assert "qwen3.5 cannot boot on lane fake" in told
    assert (
        "Total number of attention heads (2) must be divisible by tensor parallel size (3)" in told
    )
    assert "fix: tensor_parallel_size = 2 in [serve]" in told
    assert "next: vllm-gates preflight --model qwen3.5 --checkpoint miniature --lane fake" in told
    (family,) = project.verdict()["families"]
    checks = {entry["name"]: entry["state"] for entry in family["boot"]["evidence"]["preflight"]}
    assert checks["attention_heads"] == "fails"
    assert not project.key_file.exists(), "a server was started"


def test_absurd_flags_end_in_words(project: Project) -> None:
    project.lane(more='\n[serve]\ntensor_parallel_size = "many"\n')
    result = project.pytest(*ARGUMENTS)
    assert result.ret == 1
    assert "tensor_parallel_size = 'many' is no positive whole number" in result.stdout.str()


def test_what_is_not_known_holds_nothing_up(
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


def test_a_running_server_is_not_looked_at_before(project: Project) -> None:
    project.lane()
    project.write("lanes/fake.toml", 'title = "x"\nbase_url = "http://127.0.0.1:9/v1"\n')
    project.pytest(*ARGUMENTS)
    (family,) = project.verdict()["families"]
    assert "preflight" not in family["boot"]["evidence"]
