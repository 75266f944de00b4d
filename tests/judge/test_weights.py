"""Parameters and bytes, against published counts and the shipped checkpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_vllm_gates.drive.safetensors_headers import read, weights_bytes
from pytest_vllm_gates.facts.errors import UserError
from pytest_vllm_gates.facts.memory_plan import GIB, Room, Serving
from pytest_vllm_gates.judge.memory_plan import plan
from pytest_vllm_gates.judge.model_shape import shape_of
from pytest_vllm_gates.judge.parameters import Role, parts
from pytest_vllm_gates.judge.weights import unknown_method, weights
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
    ({**DEEPSEEK_V3, "model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944,
      "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16,
      "vocab_size": 102400, "n_routed_experts": 64, "n_shared_experts": 2,
      "first_k_dense_replace": 1, "q_lora_rank": None}, 15_706_484_224),
]  # fmt: skip

SMALL = {"vocab_size": 1000, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
         "hidden_size": 256, "intermediate_size": 512, "tie_word_embeddings": False}  # fmt: skip
SMALL_MOE = {**SMALL, "num_hidden_layers": 6, "num_experts": 8, "moe_intermediate_size": 64}
SMALL_GEMMA = {
    **SMALL, "model_type": "gemma4_text", "global_head_dim": 128, "sliding_window": 64,
    "vocab_size_per_layer_input": 900, "hidden_size_per_layer_input": 32,
    "tie_word_embeddings": True,
}  # fmt: skip
SMALL_SPARSE = {
    **DEEPSEEK_V3, "hidden_size": 512, "intermediate_size": 1024, "moe_intermediate_size": 128,
    "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 1000, "n_routed_experts": 8,
    "first_k_dense_replace": 1, "kv_lora_rank": 64, "q_lora_rank": 96, "index_topk": 2048,
    "index_head_dim": 128, "index_n_heads": 16,
}  # fmt: skip
# Made by transformers 5.19 on its "meta" device and counted there, a router's biases included.
MADE: dict[str, tuple[dict[str, Any], int]] = {
    "states beside attention": (
        {**SMALL, "model_type": "granitemoehybrid", "hidden_size": 512, "intermediate_size": 192,
         "shared_intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
         "layer_types": ["mamba", "mamba", "attention", "mamba"], "num_local_experts": 8,
         "mamba_n_heads": 16, "mamba_d_head": 64, "mamba_d_state": 32, "mamba_n_groups": 1,
         "mamba_d_conv": 4, "tie_word_embeddings": True}, 17_059_408),
    "one thing a layer": (
        {**SMALL, "model_type": "nemotron_h", "hidden_size": 512, "intermediate_size": 320,
         "num_hidden_layers": 6, "hybrid_override_pattern": "ME*-ME", "num_attention_heads": 8,
         "mamba_num_heads": 16, "mamba_head_dim": 32, "ssm_state_size": 16, "n_groups": 2,
         "conv_kernel": 4, "n_routed_experts": 8, "n_shared_experts": 1,
         "moe_intermediate_size": 96, "moe_shared_expert_intermediate_size": 160}, 5_581_040),
    "experts in every second layer": (
        {**SMALL_MOE, "model_type": "qwen3_moe", "mlp_only_layers": [1],
         "decoder_sparse_step": 2}, 4_059_136),
    "experts but in one layer": (
        {**SMALL_MOE, "model_type": "qwen3_moe", "mlp_only_layers": [1]}, 4_065_280),
    "a shared expert with a gate": (
        {**SMALL_MOE, "model_type": "qwen2_moe", "num_hidden_layers": 4,
         "shared_expert_intermediate_size": 128}, 3_278_080),
    "experts by turns": (
        {**SMALL, "model_type": "llama4_text", "intermediate_size": 128,
         "intermediate_size_mlp": 512, "num_hidden_layers": 4, "num_local_experts": 4,
         "interleave_moe_layer_step": 2, "attention_chunk_size": 64}, 3_072_256),
    "embeddings of each layer": ({**SMALL_GEMMA, "num_hidden_layers": 5}, 3_676_064),
    "layers that read the cache of others": (
        {**SMALL_GEMMA, "num_hidden_layers": 10, "num_kv_shared_layers": 4,
         "use_double_wide_mlp": True}, 8_340_704),
    "an indexer": ({**SMALL_SPARSE, "model_type": "deepseek_v32"}, 8_508_144),
    "an indexer of GLM's": ({**SMALL_SPARSE, "model_type": "glm_moe_dsa"}, 8_508_144),
}  # fmt: skip


@pytest.mark.parametrize(("config", "count"), PUBLISHED)
def test_parameters_are_those_published(config: dict[str, Any], count: int) -> None:
    assert sum(part.count for part in parts(shape_of(config)) or []) == count


@pytest.mark.parametrize(("config", "count"), MADE.values(), ids=MADE)
def test_parameters_are_those_its_class_makes(config: dict[str, Any], count: int) -> None:
    assert sum(part.count for part in parts(shape_of(config)) or []) == count


@pytest.mark.parametrize(
    ("name", "counts", "whole"),
    [
        ("states beside attention", [5_496_832, 1_572_864, 9_437_184, 40_528], 20_992),
        ("one thing a layer", [2_310_144, 655_360, 1_572_864, 18_672], 11_792),
        ("a shared expert with a gate", [786_432, 393_216, 1_572_864, 13_568], 11_520),
        ("layers that read the cache of others", [2_031_616, 5_505_024, 0, 260_064], 11_712),
        ("an indexer", [2_359_296, 1_966_080, 3_145_728, 13_040], 1_168_112),
    ],
)
def test_parts_are_told_apart_as_quantisation_and_devices_do(
    name: str, counts: list[int], whole: int
) -> None:
    found = parts(shape_of(MADE[name][0])) or []

    def of(role: Role) -> int:
        return sum(part.count for part in found if part.role is role)

    roles = (Role.ATTENTION, Role.DENSE, Role.EXPERTS, Role.PLAIN)
    assert [of(role) for role in roles] == counts
    assert sum(part.count for part in found if part.whole) == whole
    words = of(Role.EMBEDDING) + of(Role.HEAD)
    assert sum(counts) + words == MADE[name][1]


def test_what_a_config_leaves_out_is_as_its_class_has_it() -> None:
    def same(config: dict[str, Any], name: str, value: object) -> bool:
        without = {key: one for key, one in config.items() if key != name}
        return parts(shape_of(without)) == parts(shape_of({**config, name: value}))

    assert same(LLAMA_8B, "tie_word_embeddings", False)
    assert not same(LLAMA_8B, "tie_word_embeddings", True)
    assert same({**SMALL_SPARSE, "model_type": "deepseek_v32"}, "index_n_heads", 64)
    assert same({**SMALL_GEMMA, "num_hidden_layers": 5}, "vocab_size_per_layer_input", 1000)
    turns, _ = MADE["experts by turns"]
    assert same(turns, "interleave_moe_layer_step", 1)
    biased, named = ({**LLAMA_8B, key: True} for key in ("attention_bias", "qkv_bias"))
    assert parts(shape_of(biased)) == parts(shape_of(named)) != parts(shape_of(LLAMA_8B))


def test_what_is_known_of_no_class_has_a_head_of_its_own() -> None:
    unknown = {**LLAMA_8B, "model_type": "brandnew"}
    del unknown["tie_word_embeddings"]
    assert parts(shape_of(unknown)) == parts(shape_of(LLAMA_8B))


def test_the_projections_of_a_delta_net_are_quantised_like_attention() -> None:
    config = {
        **SMALL, "model_type": "qwen3_next", "num_hidden_layers": 2, "num_experts": 0,
        "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2,
        "linear_key_head_dim": 32, "linear_num_value_heads": 4, "linear_value_head_dim": 64,
        "linear_conv_kernel_dim": 4,
    }  # fmt: skip
    found = [p.count for p in parts(shape_of(config)) or [] if p.role is Role.ATTENTION]
    # Queries and keys of 64, values, gates and the output of 256; a gate beside the queries.
    assert found == [256 * (2 * 64 + 3 * 256), 256 * (2 * 256 + 2 * 2 * 64 + 256)]


def test_experts_are_in_the_layers_that_the_step_names() -> None:
    config = {**SMALL_MOE, "model_type": "qwen3_moe", "mlp_only_layers": [1]}
    stepped = shape_of({**config, "decoder_sparse_step": 3})
    assert parts(stepped) == parts(shape_of({**config, "mlp_only_layers": [0, 1, 3, 4]}))
    turns = {**MADE["experts by turns"][0], "num_hidden_layers": 8, "interleave_moe_layer_step": 3}
    kinds = [part.role for part in parts(shape_of(turns)) or [] if part.role is Role.EXPERTS]
    assert len(kinds) == 2, "the third and the sixth"


def dense(config: dict[str, Any]) -> int:
    return sum(p.count for p in parts(shape_of(config)) or [] if p.role is Role.DENSE)


def test_one_expert_is_none_and_two_are_some() -> None:
    config = {**SMALL_MOE, "model_type": "qwen3_moe"}
    plain = 6 * 3 * 256 * 512
    assert dense({**config, "num_experts": 1}) == dense({**config, "num_experts": 0}) == plain
    assert dense({**config, "num_experts": 2}) == 0


def test_layers_of_one_thing_are_known_by_letters_and_by_words() -> None:
    config, _ = MADE["one thing a layer"]
    words = ["mamba", "moe", "attention", "mlp", "mamba", "moe"]
    listed = {**config, "hybrid_override_pattern": None, "layers_block_type": words}
    assert parts(shape_of(listed)) == parts(shape_of(config))


def test_gemma_has_a_dense_part_beside_experts_and_a_wide_one_where_it_borrows() -> None:
    plain = {**SMALL_GEMMA, "num_hidden_layers": 10}
    each = 3 * 256 * 512
    assert dense(plain) == dense({**plain, "num_experts": 8, "moe_intermediate_size": 64})
    assert dense(plain) == dense({**plain, "num_kv_shared_layers": 4}) == 10 * each
    assert dense({**plain, "use_double_wide_mlp": True}) == 10 * each
    assert dense({**plain, "num_kv_shared_layers": 4, "use_double_wide_mlp": True}) == 14 * each


def test_a_layer_that_borrows_keys_and_values_has_none_whoever_describes_the_layers() -> None:
    config, _ = MADE["layers that read the cache of others"]
    listed = (["sliding_attention"] * 5 + ["full_attention"] + ["sliding_attention"] * 3
              + ["full_attention"])  # fmt: skip
    assert parts(shape_of({**config, "layer_types": listed})) == parts(shape_of(config))


@pytest.mark.parametrize("more", [
    {"model_type": "lfm2"}, {"block_configs": [{"attention": {}}] * 32}, {"vocab_size": None},
])  # fmt: skip
def test_what_is_not_counted_has_no_size(more: dict[str, Any]) -> None:
    shape = shape_of({**LLAMA_8B, **more})
    assert parts(shape) is None
    assert weights(shape, Serving(), None) is None


def test_a_count_for_which_the_config_lacks_something_leaves_the_size_unknown() -> None:
    shape = shape_of({**LLAMA_8B, "intermediate_size": "wide"})
    assert weights(shape, Serving(), None) is None
    given = weights(shape, Serving(tensor_parallel_size=2, pipeline_parallel_size=2), 4000)
    assert given is not None
    assert (given.bytes_total, given.bytes_per_device, given.parameters) == (4000, 1000, None)
    assert given.source == "the checkpoint's files"


def test_what_a_count_rests_on_is_said() -> None:
    plain = weights(shape_of(LLAMA_8B), Serving(), None)
    unknown = weights(shape_of({**LLAMA_8B, "model_type": "brandnew"}), Serving(), None)
    assert plain and unknown
    assert plain.unsure == (
        "the weights' size is counted from the config; the checkpoint's files know it",
    )
    assert unknown.unsure[1:] == ("the type 'brandnew' is not known here: counted like Llama's",)
    assert unknown.bytes_total == plain.bytes_total


def vision(tower: object) -> int:
    shape = shape_of({"model_type": "llava", "text_config": LLAMA_8B, "vision_config": tower})
    return sum(part.count for part in parts(shape) or [] if part.role is Role.VISION)


def test_a_vision_tower_is_counted_about_and_said_to_be() -> None:
    # CLIP's ViT-L/14 has 303,179,776 parameters; the way into the language model is beside them.
    clip = {"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096}
    assert vision(clip) - 1024 * 4096 == pytest.approx(303_179_776, rel=0.01)
    assert vision({"embed_dim": 1024, "depth": 24}) == vision(clip)
    narrow = 24 * (4 * 1024**2 + 2 * 1024 * 2048) + 1024 * 4096
    assert vision({**clip, "intermediate_size": 2048}) == narrow
    assert vision({"hidden_size": "wide", "depth": 24}) == vision({"hidden_size": 1024}) == 0
    shape = shape_of({"model_type": "llava", "text_config": LLAMA_8B, "vision_config": clip})
    found = weights(shape, Serving(), None)
    assert found is not None
    assert found.unsure[-1] == "the vision tower is counted like a plain transformer"


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
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}}, 5.61),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 8.46),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8.46),
        ({"quant_method": "compressed-tensors", "config_groups": {
            "group_0": {"weights": {"num_bits": 8, "group_size": None}}}}, 8.46),
        ({"quant_method": "fp8", "modules_to_not_convert": ["self_attn", "layers.0.mlp"]}, 9.71),
        ({"quant_method": "compressed-tensors", "config_groups": {
            "group_0": {"weights": {"num_bits": 4, "group_size": 128}}}}, 5.31),
    ],
)  # fmt: skip
def test_bytes_follow_the_quantisation(quantisation: dict[str, Any] | None, gib: float) -> None:
    config = {**LLAMA_8B, **({"quantization_config": quantisation} if quantisation else {})}
    found = weights(shape_of(config), Serving(), None)
    assert found is not None
    assert round(found.bytes_total / GIB, 2) == gib


@pytest.mark.parametrize(
    ("asked", "method"),
    [("fp8", "fp8"), ("AWQ", "awq"), ("bitsandbytes", "bitsandbytes"), ("experts_int8", None)],
)
def test_a_flag_quantises_what_the_checkpoint_does_not(asked: str, method: str | None) -> None:
    by_flag = weights(shape_of(LLAMA_8B), Serving(quantization=asked), None)
    config = {**LLAMA_8B, **({"quantization_config": {"quant_method": method}} if method else {})}
    assert by_flag == weights(shape_of(config), Serving(), None)


def size_of(**quantisation: Any) -> int:
    config = {**LLAMA_8B, "quantization_config": quantisation}
    found = weights(shape_of(config), Serving(), None)
    assert found is not None
    return found.bytes_total


PROJECTED, REST = 6_979_321_856, 2 * 1_050_939_392


def test_bits_and_groups_are_read_as_each_method_spells_them() -> None:
    four, eight = PROJECTED * (0.5 + 2.5 / 128) + REST, PROJECTED * (1 + 3 / 128) + REST
    assert size_of(quant_method="awq") == size_of(quant_method="gptq", bits=4) == four
    assert size_of(quant_method="awq", w_bit=8) == size_of(quant_method="gptq", bits=8) == eight
    assert size_of(quant_method="awq", group_size=64) == PROJECTED * (0.5 + 2.5 / 64) + REST
    assert size_of(quant_method="awq", group_size=-1) == PROJECTED // 2 + REST
    assert size_of(quant_method="bitsandbytes") == PROJECTED * (0.5 + 4 / 64) + REST


@pytest.mark.parametrize(
    ("kept", "each"),
    [
        ({"num_bits": 1}, 1 / 8),
        ({"num_bits": 16}, 2),
        ({"num_bits": 8, "group_size": 0}, 1),
        ({"num_bits": 8, "group_size": 1}, 3),
    ],
)
def test_compressed_tensors_say_bits_and_groups(kept: dict[str, int], each: float) -> None:
    groups = {"group_0": {"weights": kept}}
    size = size_of(quant_method="compressed-tensors", config_groups=groups)
    assert size == PROJECTED * each + REST


def test_a_role_is_left_as_it_is_where_all_of_it_is_named() -> None:
    def size(*names: str, key: str = "ignore") -> int:
        quantisation = {"quant_method": "fbgemm_fp8", key: names}
        config = {**MADE["a shared expert with a gate"][0], "quantization_config": quantisation}
        found = weights(shape_of(config), Serving(), None)
        assert found is not None
        return found.bytes_total

    quantised = size()
    # A parameter that is left as it is takes a byte more.
    assert size("self_attn") - quantised == 786_432
    assert size("mlp") - quantised == 393_216
    assert size("mlp.experts") - quantised == 393_216 + 1_572_864
    assert size("experts", key="modules_to_not_convert") - quantised == 1_572_864
    assert size("mlp.shared_expert", "mlp.gate", "layers.3.self_attn", "lm_head") == quantised


def test_the_methods_that_are_known_are_listed() -> None:
    with pytest.raises(UserError) as caught:
        weights(shape_of(LLAMA_8B), Serving(quantization="zzzz"), None)
    first, listed = str(caught.value).splitlines()
    assert first == "--quantization 'zzzz' is not known"
    assert listed.startswith("known: auto-round, auto_round, awq, ")
    assert unknown_method(shape_of(LLAMA_8B)) is None
    fp8 = shape_of({**LLAMA_8B, "quantization_config": {"quant_method": "fp8"}})
    assert unknown_method(fp8) is None


def test_a_flag_that_does_not_say_the_bits_leaves_the_size_unknown() -> None:
    serving = Serving(quantization="compressed-tensors")
    assert weights(shape_of(LLAMA_8B), serving, None) is None


@pytest.mark.parametrize(
    "group",
    [
        {},
        {"group_0": "int4"},
        {"group_0": {"weights": None}},
        {"group_0": {"weights": {"num_bits": True}}},
        {"group_0": {"weights": {"num_bits": 0}}},
        {"group_0": {"weights": {"num_bits": 17}}},
        {"group_0": {"weights": {"num_bits": "4"}}},
    ],
)
def test_compressed_tensors_of_no_known_bits_leave_the_size_unknown(group: Any) -> None:
    quantisation = {"quant_method": "compressed-tensors", "config_groups": group}
    shape = shape_of({**LLAMA_8B, "quantization_config": quantisation})
    assert weights(shape, Serving(), None) is None
    assert unknown_method(shape) == "compressed-tensors"


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
