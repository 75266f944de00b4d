"""Parameters counted from a config, against published counts and the shipped checkpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memory_plan.model_configs import (
    LLAMA_8B,
    MADE,
    PUBLISHED,
    SMALL,
    SMALL_GEMMA,
    SMALL_MOE,
    SMALL_SPARSE,
)
from pytest_vllm_gates.checkpoints.miniatures import CHECKPOINTS, names
from pytest_vllm_gates.checkpoints.safetensors import read, weights_bytes
from pytest_vllm_gates.memory_plan import vision_tower
from pytest_vllm_gates.memory_plan.parameter_parts import Role
from pytest_vllm_gates.memory_plan.parameters import parts
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import Serving
from pytest_vllm_gates.memory_plan.weights import weights


@pytest.mark.parametrize(("config", "count"), PUBLISHED)
def test_parameters_are_those_published(config: dict[str, Any], count: int) -> None:
    assert sum(part.count for part in parts(shape_of(config)) or []) == count


@pytest.mark.parametrize(("config", "count"), MADE.values(), ids=MADE)
def test_parameters_are_those_its_class_makes(config: dict[str, Any], count: int) -> None:
    assert sum(part.count for part in parts(shape_of(config)) or []) == count


@pytest.mark.parametrize(
    ("name", "counts", "replicated"),
    [
        ("states beside attention", [5_496_832, 1_572_864, 9_437_184, 40_528], 20_992),
        ("one thing a layer", [2_310_144, 655_360, 1_572_864, 18_672], 11_792),
        ("a shared expert with a gate", [786_432, 393_216, 1_572_864, 13_568], 11_520),
        ("layers that read the cache of others", [2_031_616, 5_505_024, 0, 260_064], 11_712),
        ("an indexer", [2_359_296, 1_966_080, 3_145_728, 13_040], 1_168_112),
    ],
)
def test_parts_have_roles_and_are_divided_or_replicated(
    name: str, counts: list[int], replicated: int
) -> None:
    counted_parts = parts(shape_of(MADE[name][0])) or []

    def of(role: Role) -> int:
        return sum(part.count for part in counted_parts if part.role is role)

    roles = (Role.ATTENTION, Role.DENSE, Role.EXPERTS, Role.PLAIN)
    assert [of(role) for role in roles] == counts
    assert sum(part.count for part in counted_parts if part.replicated) == replicated
    words = of(Role.EMBEDDING) + of(Role.HEAD)
    assert sum(counts) + words == MADE[name][1]


def test_missing_key_equals_the_class_default() -> None:
    def is_default(config: dict[str, Any], name: str, value: object) -> bool:
        without = {key: kept_value for key, kept_value in config.items() if key != name}
        return parts(shape_of(without)) == parts(shape_of({**config, name: value}))

    assert is_default(LLAMA_8B, "tie_word_embeddings", False)
    assert not is_default(LLAMA_8B, "tie_word_embeddings", True)
    assert is_default({**SMALL_SPARSE, "model_type": "deepseek_v32"}, "index_n_heads", 64)
    assert is_default({**SMALL_GEMMA, "num_hidden_layers": 5}, "vocab_size_per_layer_input", 1000)
    turns, _ = MADE["experts by turns"]
    assert is_default(turns, "interleave_moe_layer_step", 1)
    biased, renamed = ({**LLAMA_8B, key: True} for key in ("attention_bias", "qkv_bias"))
    assert parts(shape_of(biased)) == parts(shape_of(renamed)) != parts(shape_of(LLAMA_8B))


def test_unknown_class_has_an_untied_head() -> None:
    unknown = {**LLAMA_8B, "model_type": "brandnew"}
    del unknown["tie_word_embeddings"]
    assert parts(shape_of(unknown)) == parts(shape_of(LLAMA_8B))


def test_delta_net_projections_count_as_attention() -> None:
    config = {
        **SMALL, "model_type": "qwen3_next", "num_hidden_layers": 2, "num_experts": 0,
        "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2,
        "linear_key_head_dim": 32, "linear_num_value_heads": 4, "linear_value_head_dim": 64,
        "linear_conv_kernel_dim": 4,
    }  # fmt: skip
    counts = {p.name: p.count for p in parts(shape_of(config)) or [] if p.role is Role.ATTENTION}
    # Queries and keys of 64, values, gates and the output of 256; a gate beside the queries.
    assert counts == {
        "layers.0.linear_attn.in_proj_qkv": 256 * (2 * 64 + 256),
        "layers.0.linear_attn.in_proj_z": 256 * 256,
        "layers.0.linear_attn.out_proj": 256 * 256,
        "layers.1.self_attn.q_proj": 256 * 2 * 256,
        "layers.1.self_attn.k_proj": 256 * 2 * 64,
        "layers.1.self_attn.v_proj": 256 * 2 * 64,
        "layers.1.self_attn.o_proj": 256 * 256,
    }


def test_experts_are_in_the_layers_that_the_step_names() -> None:
    config = {**SMALL_MOE, "model_type": "qwen3_moe", "mlp_only_layers": [1]}
    stepped = shape_of({**config, "decoder_sparse_step": 3})
    assert parts(stepped) == parts(shape_of({**config, "mlp_only_layers": [0, 1, 3, 4]}))
    turns = {**MADE["experts by turns"][0], "num_hidden_layers": 8, "interleave_moe_layer_step": 3}
    kinds = [part.role for part in parts(shape_of(turns)) or [] if part.role is Role.EXPERTS]
    assert len(kinds) == 2, "the third and the sixth"


def dense(config: dict[str, Any]) -> int:
    return sum(p.count for p in parts(shape_of(config)) or [] if p.role is Role.DENSE)


def test_one_expert_is_dense_and_two_are_a_mixture() -> None:
    config = {**SMALL_MOE, "model_type": "qwen3_moe"}
    plain = 6 * 3 * 256 * 512
    assert dense({**config, "num_experts": 1}) == dense({**config, "num_experts": 0}) == plain
    assert dense({**config, "num_experts": 2}) == 0


def test_layer_pattern_is_read_as_letters_and_as_words() -> None:
    config, _ = MADE["one thing a layer"]
    words = ["mamba", "moe", "attention", "mlp", "mamba", "moe"]
    in_words = {**config, "hybrid_override_pattern": None, "layers_block_type": words}
    assert parts(shape_of(in_words)) == parts(shape_of(config))


def test_gemma_dense_part_is_wide_in_layers_that_borrow() -> None:
    plain = {**SMALL_GEMMA, "num_hidden_layers": 10}
    layer_parameters = 3 * 256 * 512
    assert dense(plain) == dense({**plain, "num_experts": 8, "moe_intermediate_size": 64})
    assert dense(plain) == dense({**plain, "num_kv_shared_layers": 4}) == 10 * layer_parameters
    assert dense({**plain, "use_double_wide_mlp": True}) == 10 * layer_parameters
    assert (
        dense({**plain, "num_kv_shared_layers": 4, "use_double_wide_mlp": True})
        == 14 * layer_parameters
    )


def test_borrowing_layer_has_no_key_value_projections() -> None:
    config, _ = MADE["layers that read the cache of others"]
    layer_types = (["sliding_attention"] * 5 + ["full_attention"] + ["sliding_attention"] * 3
              + ["full_attention"])  # fmt: skip
    assert parts(shape_of({**config, "layer_types": layer_types})) == parts(shape_of(config))


@pytest.mark.parametrize("changes", [
    {"model_type": "lfm2"}, {"block_configs": [{"attention": {}}] * 32}, {"vocab_size": None},
])  # fmt: skip
def test_unsupported_models_are_not_counted(changes: dict[str, Any]) -> None:
    shape = shape_of({**LLAMA_8B, **changes})
    assert parts(shape) is None
    assert weights(shape, Serving(), None) is None


def vision(tower: object) -> int:
    shape = shape_of({"model_type": "llava", "text_config": LLAMA_8B, "vision_config": tower})
    return sum(part.count for part in parts(shape) or [] if part.role is Role.VISION)


def test_vision_tower_of_qwen3_vl_is_counted_part_by_part() -> None:
    # Qwen/Qwen3-VL-2B-Instruct, config.json: SigLIP-2 Large with four mergers.
    tower = {
        "depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "out_hidden_size": 2048,
        "num_position_embeddings": 2304, "patch_size": 16, "spatial_merge_size": 2,
        "temporal_patch_size": 2, "in_channels": 3, "deepstack_visual_indexes": [5, 11, 17],
    }  # fmt: skip
    assert vision(tower) == 406_957_056
    shape = shape_of({"model_type": "llava", "text_config": LLAMA_8B, "vision_config": tower})
    size = weights(shape, Serving(), None)
    assert size is not None
    assert not any("vision" in note for note in size.unsure)
    assert vision({**tower, "deepstack_visual_indexes": None}) < vision(tower)


def test_vision_tower_of_gemma_3_is_counted_part_by_part() -> None:
    # google/gemma-3-4b-it, config.json. The report (arXiv:2503.19786, table 1) has 417M.
    tower = {
        "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "patch_size": 14,
        "num_hidden_layers": 27, "vision_use_head": False,
    }  # fmt: skip
    config = {"model_type": "gemma3", "text_config": LLAMA_8B, "vision_config": tower}
    shape = shape_of(config)
    (eyes,) = (part.count for part in parts(shape) or [] if part.role is Role.VISION)
    assert eyes - (1152 * 4096 + 1152) == 416_866_032
    size = weights(shape, Serving(), None)
    assert size is not None
    assert not any("vision" in note for note in size.unsure)
    assert not vision_tower.is_known({**config, "vision_config": {**tower, "patch_size": 0}})


def test_vision_tower_estimate_is_noted() -> None:
    # CLIP's ViT-L/14 has 303,179,776 parameters; the way into the language model is beside them.
    clip = {"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096}
    assert vision(clip) - 1024 * 4096 == pytest.approx(303_179_776, rel=0.01)
    assert vision({"embed_dim": 1024, "depth": 24}) == vision(clip)
    narrow = 24 * (4 * 1024**2 + 2 * 1024 * 2048) + 1024 * 4096
    assert vision({**clip, "intermediate_size": 2048}) == narrow
    assert vision({"hidden_size": "wide", "depth": 24}) == vision({"hidden_size": 1024}) == 0
    shape = shape_of({"model_type": "llava", "text_config": LLAMA_8B, "vision_config": clip})
    size = weights(shape, Serving(), None)
    assert size is not None
    assert size.unsure[-1] == "the vision tower is counted like a plain transformer"


@pytest.mark.parametrize("name", names())
def test_shipped_checkpoint_parameters_match_its_files(name: str) -> None:
    folder = CHECKPOINTS / name
    shape = shape_of(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    counted = sum(part.count for part in parts(shape) or [])
    in_files = sum(tensor.elements for tensor in read(folder / "model.safetensors"))
    # Gemma 4 has a number for each layer besides.
    assert 0 <= in_files - counted <= shape.layers
    size = weights_bytes(folder, shape.layers)
    assert size is not None
    assert size == pytest.approx(2 * in_files, rel=0.01)
