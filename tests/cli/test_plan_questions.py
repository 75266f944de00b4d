"""`vllm-gates plan` for usual questions: Hub ids, GPUs by name, several contexts, any GPU."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import huggingface_hub
import pytest
from huggingface_hub.utils._safetensors import (
    SafetensorsFileMetadata,
    SafetensorsRepoMetadata,
    TensorInfo,
)

from cli.test_plan import LLAMA
from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.machine import known_gpus

if TYPE_CHECKING:
    from pathlib import Path

Capture = pytest.CaptureFixture[str]
BYTES = 16_060_522_496


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Hub's answers for meta-llama/Llama-3.1-8B: its config, and one header of its weights."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    tensors = {
        "model.layers.0.mlp.up_proj.weight": TensorInfo("BF16", [BYTES // 2], (0, BYTES)),
        "model.layers.32.mlp.up_proj.weight": TensorInfo("BF16", [500], (BYTES, BYTES + 1000)),
    }
    file = SafetensorsFileMetadata({}, tensors)
    names = dict.fromkeys(tensors, "model.safetensors")
    answer = SafetensorsRepoMetadata(None, False, names, {"model.safetensors": file})

    def snapshot(name: str, *, allow_patterns: list[str]) -> str:
        assert allow_patterns == ["config.json", "hf_quant_config.json"], "no weights"
        if name != "meta-llama/Llama-3.1-8B":
            raise OSError(f"404 Client Error: {name} is not there\nmore")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setattr(huggingface_hub, "get_safetensors_metadata", lambda _: answer)
    return tmp_path


@pytest.mark.usefixtures("hub")
def test_hub_id_is_planned_from_headers(capsys: Capture) -> None:
    assert main(["plan", "meta-llama/Llama-3.1-8B", "--gpu", "h100", "--tp", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["model"] == "meta-llama/Llama-3.1-8B"
    # The layer beyond the model's own only drafts.
    assert document["weights_bytes"] == BYTES
    assert document["weights_source"] == "the checkpoint's files"
    assert document["device_bytes"] == 81009 * 2**20
    assert document["notes"][0].startswith("NVIDIA H100 80GB HBM3: 79.11 GiB usable of 80GB (")
    assert main(["plan", "meta-llama/absent"]) == 2
    error = capsys.readouterr().err
    assert "404 Client Error: meta-llama/absent is not there" in error and "more" not in error
    assert "hf auth login" in error


@pytest.mark.usefixtures("hub")
def test_weights_are_counted_where_headers_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def fails(_: str) -> Any:
        raise OSError("offline")

    monkeypatch.setattr(huggingface_hub, "get_safetensors_metadata", fails)
    assert main(["plan", "meta-llama/Llama-3.1-8B", "--gpu", "H100", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["weights_source"] == "counted from the config"
    assert "the headers of the weights cannot be read: offline" in document["notes"]


def test_vendors_gigabytes_are_read_as_vendors_mean_them(hub: Path, capsys: Capture) -> None:
    def device_bytes(size: str) -> int:
        main(["plan", str(hub), "--gpu-memory", size, "--json"])
        document = json.loads(capsys.readouterr().out)
        said = any("80GB is read as a GPU vendor's size" in each for each in document["notes"])
        assert said is (size == "80GB")
        return int(document["device_bytes"])

    assert device_bytes("80GB") == 80 * 2**30 * 99 // 100
    assert device_bytes("80GiB") == 80 * 2**30


def test_several_contexts_are_a_table(hub: Path, capsys: Capture) -> None:
    arguments = ["plan", str(hub), "--kv-memory", "10GiB"]
    contexts = ["--max-model-len", "32K", "--max-model-len", "128K"]
    assert main([*arguments, *contexts]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["context", "fits", "needs", "concurrency", "at", "once"]
    assert lines[2].split()[:2] == ["32,768", "yes"]
    assert lines[3].split()[:2] == ["131,072", "no"]
    assert main([*arguments, *contexts, "--json"]) == 1
    assert [each["context"] for each in json.loads(capsys.readouterr().out)] == [32768, 131072]


def test_which_gpu_and_how_many_is_a_table(hub: Path, capsys: Capture) -> None:
    arguments = ["plan", str(hub), "--gpu", "all", "--max-model-len", "128K"]
    assert main([*arguments, "--json"]) == 0
    needed = {
        row["gpu"]: row["tensor_parallel_size"] for row in json.loads(capsys.readouterr().out)
    }
    assert needed["h100"] == 1 and needed["b200"] == 1
    # 15 GiB of weights and 16 GiB of cache.
    assert needed["rtx4090"] == 2 and needed["t4"] == 4
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert "planned for one request of 131,072 tokens" in output
    assert len(output.splitlines()) == len(known_gpus.table()) + 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "h10"], "--gpu 'h10' is not in the table; did you mean 'h100'?"),
        (["--gpu", "h100", "--gpu-memory", "80GB"], "--gpu and --gpu-memory: give only one"),
        (["--vllm-version", "0.40.0"], "--vllm-version 0.40.0 is newer than 0.32"),
        (["--config", "config.json"], "give one model"),
    ],
)
def test_contradictory_questions_are_refused(
    hub: Path, arguments: list[str], message: str, capsys: Capture
) -> None:
    assert main(["plan", str(hub), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_every_gpu_has_a_source_and_a_capability() -> None:
    for gpu in known_gpus.table().values():
        assert gpu.source and known_gpus.capability_of(gpu.product) == gpu.capability
        assert known_gpus.named(gpu.product) is known_gpus.named(gpu.name.upper()) is gpu
    assert known_gpus.capability_of("NVIDIA Unheard") is None
