"""Parameters and bytes, against published counts and the shipped checkpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_vllm_gates.drive.safetensors_headers import read, weights_bytes
from pytest_vllm_gates.facts.memory_plan import GIB, Room, Serving
from pytest_vllm_gates.judge.memory_plan import plan
from pytest_vllm_gates.judge.model_shape import shape_of
from pytest_vllm_gates.judge.parameters import parts
from pytest_vllm_gates.judge.weights import weights
from pytest_vllm_gates.miniatures.checkpoint import CHECKPOINTS
from pytest_vllm_gates.miniatures.recipe import names

LLAMA_8B = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "max_position_embeddings": 131072,
}  # fmt: skip
GPT_OSS = {
    "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088,
    "tie_word_embeddings": False, "attention_bias": True, "sliding_window": 128,
    "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip
QWEN3_MOE = {
    "model_type": "qwen3_moe", "head_dim": 128, "vocab_size": 151936, "num_experts": 128,
    "num_key_value_heads": 4, "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
    "vocab_size": 129280, "n_routed_experts": 256, "n_shared_experts": 1,
    "first_k_dense_replace": 3, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "tie_word_embeddings": False,
}  # fmt: skip

PUBLISHED: list[tuple[dict[str, Any], int]] = [
    (LLAMA_8B, 8_030_261_248),
    ({"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
      "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
      "vocab_size": 152064, "tie_word_embeddings": False}, 7_615_616_512),
    ({"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
      "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
      "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True}, 596_049_920),
    ({**QWEN3_MOE, "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
      "moe_intermediate_size": 768}, 30_532_122_624),
    ({**QWEN3_MOE, "hidden_size": 4096, "num_hidden_layers": 94, "num_attention_heads": 64,
      "moe_intermediate_size": 1536}, 235_093_634_560),
    ({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
      "vocab_size": 32000, "num_local_experts": 8, "sliding_window": None}, 46_702_792_704),
    ({**GPT_OSS, "num_hidden_layers": 24, "num_local_experts": 32}, 20_914_757_184),
    ({**GPT_OSS, "num_hidden_layers": 36, "num_local_experts": 128}, 116_829_156_672),
    ({"model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336,
      "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8,
      "head_dim": 256, "vocab_size": 256000, "sliding_window": 4096}, 9_241_705_984),
    (DEEPSEEK_V3, 671_026_419_200),
]  # fmt: skip


@pytest.mark.parametrize(("config", "count"), PUBLISHED)
def test_parameters_are_those_published(config: dict[str, Any], count: int) -> None:
    assert sum(part.count for part in parts(shape_of(config)) or []) == count


@pytest.mark.parametrize("name", names())
def test_parameters_of_a_shipped_checkpoint_are_those_of_its_files(name: str) -> None:
    folder = CHECKPOINTS / name
    shape = shape_of(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    counted = sum(part.count for part in parts(shape) or [])
    kept = sum(tensor.elements for tensor in read(folder / "model.safetensors"))
    # Gemma 4 has a number for each layer besides.
    assert 0 <= kept - counted <= shape.layers
    size = weights_bytes(folder, shape.layers)
    assert size is not None
    assert size == pytest.approx(2 * kept, rel=0.01)


@pytest.mark.parametrize(
    ("quantisation", "gib"),
    [
        (None, 14.96),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8.46),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 5.33),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, 8.61),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 5.61),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 5.61),
        ({"quant_method": "compressed-tensors", "config_groups": {
            "group_0": {"weights": {"num_bits": 4, "group_size": 128}}}}, 5.31),
    ],
)  # fmt: skip
def test_bytes_follow_the_quantisation(quantisation: dict[str, Any] | None, gib: float) -> None:
    config = {**LLAMA_8B, **({"quantization_config": quantisation} if quantisation else {})}
    found = weights(shape_of(config), Serving(), None)
    assert found is not None
    assert round(found.bytes_total / GIB, 2) == gib


def test_only_the_experts_of_gpt_oss_are_quantised() -> None:
    config = {**GPT_OSS, "num_hidden_layers": 24, "num_local_experts": 32}
    found = weights(shape_of(config), Serving(), None)
    assert found is not None
    # A server says: "Model loading took 13.72 GiB memory".
    assert found.bytes_total / GIB == pytest.approx(12.8, abs=0.1)


def test_latent_projections_are_whole_on_every_device() -> None:
    found = weights(shape_of(DEEPSEEK_V3), Serving(tensor_parallel_size=8), None)
    assert found is not None
    assert found.bytes_per_device > found.bytes_total / 8


def test_an_unknown_quantisation_leaves_the_size_unknown_and_the_cache_known() -> None:
    shape = shape_of({**LLAMA_8B, "quantization_config": {"quant_method": "moonshine"}})
    made = plan(shape, Serving(max_model_len=8192), Room(device_memory=80 * GIB))
    assert made.weights is None and made.fits is None and made.kv_memory_bytes is None
    assert any("'moonshine' is not known" in note for note in made.notes)
    assert made.kv_bytes_per_token == 131072


def test_a_device_is_divided_between_weights_runtime_and_cache() -> None:
    serving = Serving(max_model_len=131072, device_memory=80 * GIB)
    made = plan(shape_of(LLAMA_8B), serving, Room(device_memory=80 * GIB, utilization=0.9))
    assert made.fits and made.weights and made.overhead_bytes and made.kv_memory_bytes
    assert made.kv_memory_bytes + made.weights.bytes_per_device + made.overhead_bytes == int(
        0.9 * 80 * GIB
    )
    # A server of this kind printed 51.63 GiB, another 56.21.
    assert 50 < made.kv_memory_bytes / GIB < 58
    assert any("estimate" in note for note in made.notes)


def test_weights_that_leave_nothing_are_the_knob() -> None:
    room = Room(device_memory=16 * GIB)
    made = plan(shape_of(LLAMA_8B), Serving(device_memory=16 * GIB), room)
    assert made.fits is False
    assert "nothing is left for the cache" in made.knobs[0]
