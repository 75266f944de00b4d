"""`vllm-gates plan`, as it is typed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.checkpoints.miniatures import CHECKPOINTS, names
from pytest_vllm_gates.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip

# The output of vLLM 0.32 for the shipped checkpoints, with 1 GiB on a CPU.
PRINTED = {
    "deepseek-v3.1": (466_032, 113.78),
    "gemma-3": (1_973_790, 481.88),
    "gemma-4": (1_290_555, 315.08),
    "glm-4.7": (699_008, 170.66),
    "glm-4.7-flash": (466_032, 113.78),
    "kimi-k2": (466_032, 113.78),
    "llama-3": (699_008, 170.66),
    "llama-4": (524_288, 128.0),
    "minimax-m2": (699_008, 170.66),
    "mistral": (677_825, 165.48),
    "nemotron-3": (1_864_135, 455.11),
    "phi-4": (677_825, 165.48),
    "qwen3-vl": (1_398_016, 341.31),
    "qwen3-embedding": (699_008, 170.66),
    "qwen3-reranker": (1_048_576, 256.0),
    "qwen3-classifier": (2_097_152, 512.0),
    "qwen3.5": (1_315_779, 321.24),
    "qwen3.5-moe": (1_315_779, 321.24),
}

# Served with the flags of the family's file.
SERVED = {"nemotron-3": ["--no-enable-prefix-caching"]}

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA), encoding="utf-8")
    return path


def as_json(capsys: Capture, *arguments: str) -> dict[str, Any]:
    main(["plan", "--json", *arguments])
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("name", names())
def test_plan_of_a_shipped_checkpoint_is_exact_to_the_token(name: str, capsys: Capture) -> None:
    tokens, concurrency = PRINTED[name]
    plan = as_json(
        capsys, "--config", str(CHECKPOINTS / name), "--device", "cpu",
        "--max-model-len", "4096", "--kv-memory", "1GiB", *SERVED.get(name, []),
    )  # fmt: skip
    assert plan["tokens"] == tokens
    assert round(plan["max_concurrency"], 2) == concurrency
    assert plan["weights_source"] == "the checkpoint's files"


def test_plan_that_fits_is_printed_in_lines(llama: Path, capsys: Capture) -> None:
    assert main(["plan", "--config", str(llama), "--kv-memory", "56.21"]) == 0
    out = capsys.readouterr().out
    assert "LlamaForCausalLM, vLLM 0.32.0" in out
    assert "layers: 32 x full attention" in out
    assert "a token: 131,072 bytes on each device" in out
    assert "fits: one request of 131,072 tokens needs 16.00 GiB" in out
    assert "vLLM would print: 460,464 tokens, 3.51x at 131,072 tokens per request" in out
    assert "at once, with 10% kept free: 3" in out


def test_plan_that_does_not_fit_names_a_knob(llama: Path, capsys: Capture) -> None:
    assert main(["plan", "--config", str(llama), "--kv-memory", "8GiB"]) == 1
    out = capsys.readouterr().out
    assert "does not fit" in out
    assert "turn: --max-model-len 65520: the longest context that fits" in out
    assert "turn: --kv-cache-dtype fp8" in out
    assert "turn: --tensor-parallel-size 2" in out


def test_the_proposed_context_fits_and_one_more_token_does_not(
    llama: Path, capsys: Capture
) -> None:
    longest = as_json(capsys, "--config", str(llama), "--kv-memory", "8GiB")["largest_context"]
    common = ("--config", str(llama), "--kv-memory", "8GiB", "--max-model-len")
    assert as_json(capsys, *common, str(longest))["fits"] is True
    assert as_json(capsys, *common, str(longest + 1))["fits"] is False


def test_the_json_has_every_figure_and_its_interval(llama: Path, capsys: Capture) -> None:
    plan = as_json(capsys, "--config", str(llama), "--kv-memory", "51.63GiB", "--tp", "2")
    assert {
        "model", "architecture", "layers", "kv_bytes_per_token", "block_size", "page_bytes",
        "groups", "group_size", "num_blocks", "tokens", "tokens_low", "tokens_high",
        "max_concurrency", "largest_concurrency", "largest_context", "weights_bytes", "parameters",
        "fits", "headroom", "knobs", "notes", "refused",
    } <= plan.keys()  # fmt: skip
    assert plan["tokens_low"] < plan["tokens"] < plan["tokens_high"]
    assert plan["parameters"] == 8_030_261_248
    assert plan["kv_bytes_per_token"] == 65536


def test_plan_without_memory_names_the_need(llama: Path, capsys: Capture) -> None:
    assert main(["plan", "--config", str(llama), "--max-model-len", "8K"]) == 0
    assert "one request of 8,192 tokens needs 1.00 GiB of each device" in capsys.readouterr().out


def test_a_whole_device_is_planned(llama: Path, capsys: Capture) -> None:
    plan = as_json(capsys, "--config", str(llama), "--gpu-memory", "80GiB")
    assert plan["fits"] is True
    assert plan["device_bytes"] == 80 * 2**30
    assert any("estimate" in note for note in plan["notes"])


def test_refusal_is_neither_a_traceback_nor_a_guess(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "model_type": "deepseek_v4"}), encoding="utf-8")
    assert main(["plan", "--config", str(path), "--kv-memory", "10GiB"]) == 1
    assert "refused: DeepSeek V4 keeps several compressed states" in capsys.readouterr().out
    assert as_json(capsys, "--config", str(path), "--kv-memory", "10GiB")["tokens"] is None


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--kv-memory", "8GiB", "--tp", "3"], "does not divide the model's 32 attention heads"),
        (["--kv-memory=-1GiB"], "is not valid"),
        (["--kv-memory", "8GiB", "--kv-cache-dtype", "fp9"], "did you mean 'fp8'"),
        (["--kv-memory", "8GiB", "--headroom", "2"], "--headroom 2 is not valid"),
        (["--gpu-memory", "80GiB", "--gpu-memory-utilization", "92"], "for example 0.92"),
        (["--kv-memory", "8GiB", "--vllm-version", "newest"], "not a version of vLLM: 'newest'"),
    ],
)
def test_invalid_arguments_are_refused(
    llama: Path, capsys: Capture, arguments: list[str], complaint: str
) -> None:
    assert main(["plan", "--config", str(llama), *arguments]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("size", ["lots", "8TB!", "..", ""])
def test_invalid_size_is_refused(llama: Path, capsys: Capture, size: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--config", str(llama), f"--kv-memory={size}"])
    assert ended.value.code == 2
    assert "expected a size like 80GiB" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("{", "not valid JSON"), ("[]", "not a table"), ("[" * 100_000, "not valid JSON")],
)
def test_file_that_is_not_a_config_is_refused(
    tmp_path: Path, capsys: Capture, text: str, complaint: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    assert main(["plan", "--config", str(path)]) == 2
    assert complaint in capsys.readouterr().err
    assert main(["plan", "--config", str(tmp_path / "nowhere")]) == 2
    assert "cannot be read: No such file" in capsys.readouterr().err
