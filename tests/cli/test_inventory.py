"""`vllm-gates inventory`, as it is typed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from machines import put_in_place

from pytest_vllm_gates.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_text_describes_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_in_place(tmp_path / "bin", monkeypatch, "h100x8", 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert main(["inventory"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "driver             550.90.07, CUDA 12.4 (by nvidia-smi)" in lines
    (second,) = (line for line in lines if line.startswith("GPU 1  "))
    assert second.endswith(
        "  NVIDIA H100 80GB HBM3, 79.1 GiB, 79.1 GiB free, compute capability unknown"
    )
    assert "environment        CUDA_VISIBLE_DEVICES=0" in lines


def test_unified_memory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_in_place(tmp_path / "bin", monkeypatch, "gb10")
    assert main(["inventory"]) == 0
    assert "NVIDIA GB10, unified memory: the GPU shares" in capsys.readouterr().out


def test_json_describes_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_in_place(tmp_path / "bin", monkeypatch, "t4")
    assert main(["inventory", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (gpu,) = document["machine"]["devices"]
    assert (gpu["name"], gpu["capability"]) == ("Tesla T4", "7.5")
    assert document["machine"]["driver"]["cuda"] == "11.4"
