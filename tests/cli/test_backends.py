"""`vllm-gates backends`, as it is typed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from machines import RECORDED

from pytest_vllm_gates.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "lanes").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_dry_run_prints_the_boots(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backends", "--model", "qwen3.5", "--lane", "cpu", "--dry-run"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "default the lane unchanged",
        "CPU_ATTN attention_backend = CPU_ATTN",
        "2 boots, about 2 minutes on an idle machine",
    ]


def test_a_dry_run_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["backends", "--model", "deepseek", "--lane", "cpu", "--dry-run", "--json"]
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert [boot["name"] for boot in document["boots"]][:2] == ["default", "CPU_MLA"]
    assert document["expected_s"] == 60 * len(document["boots"])


def test_a_plan_for_a_recorded_gpu_has_its_backends(capsys: pytest.CaptureFixture[str]) -> None:
    machine = str(RECORDED / "h100.xml")
    arguments = ["backends", "--lane", "cuda", "--dry-run", "--machine", machine]
    arguments += ["--checkpoint", "miniature", "--model"]
    assert main([*arguments, "qwen3.5"]) == 0
    output = capsys.readouterr().out
    names = [line.split()[0] for line in output.splitlines() if "=" in line]
    assert names == [
        "FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "gdn-triton", "gdn-flashinfer",
    ]  # fmt: skip
    assert "gdn-cutedsl                  not tried: it is for compute capability 10" in output
    assert main([*arguments, "deepseek"]) == 0
    output = capsys.readouterr().out
    names = [line.split()[0] for line in output.splitlines() if "=" in line]
    assert names == ["FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA", "prefill-FLASH_ATTN"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--backend", "FLASHINFER"], "no backend 'FLASHINFER' for this model and device; avail"),
        (
            [
                "--checkpoint",
                "miniature",
                "--backend",
                "gdn-cutedsl",
                "--lane",
                "cuda",
                "--machine",
                str(RECORDED / "h100.xml"),
            ],
            "gdn-cutedsl is not available here: it is for compute capability 10, and this GPU has",
        ),
        (["--lane", "running"], "its base_url has a fixed backend"),
    ],
)
def test_unavailable_backend_is_refused(
    more: list[str], says: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = 'title = "x"\nbase_url = "http://127.0.0.1:1"\ncheckpoint = "miniature"\n'
    (project / "lanes/running.toml").write_text(running, encoding="utf-8")
    assert main(["backends", "--model", "qwen3.5", "--lane", "cpu", "--dry-run", *more]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.real
@pytest.mark.slow
def test_a_processors_backend_serves_rightly(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backends", "--model", "qwen3.5", "--lane", "cpu", "--json"]) == 0
    default, own = json.loads(capsys.readouterr().out)["backends"]
    assert (default["name"], own["name"]) == ("default", "CPU_ATTN")
    for trial in (default, own):
        assert (trial["state"], trial["faults"]) == ("serves", [])
        assert trial["compared_with"] == "transformers in fp32"
        assert trial["tokens_per_s"] > 0
