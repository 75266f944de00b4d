"""Bytes of the weights follow the quantisation and the devices."""

from __future__ import annotations

from typing import Any

import pytest

from memory_plan.model_configs import DEEPSEEK_V3, GPT_OSS, LLAMA_8B
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import GIB, Serving
from pytest_vllm_gates.memory_plan.weights import unknown_method, weights

ROTARY = 131072 * 128 * 2
"""The table of the rotary embedding, which every device has whole."""


def test_incomplete_config_leaves_the_size_unknown() -> None:
    shape = shape_of({**LLAMA_8B, "intermediate_size": None})
    assert weights(shape, Serving(), None) is None
    from_files = weights(shape, Serving(tensor_parallel_size=2, pipeline_parallel_size=2), 4000)
    assert from_files is not None
    assert (from_files.bytes_total, from_files.bytes_per_device, from_files.parameters) == (
        4000,
        1000 + ROTARY,
        None,
    )
    assert from_files.source == "the checkpoint's files"


def test_uncertain_counts_are_noted() -> None:
    plain = weights(shape_of(LLAMA_8B), Serving(), None)
    unknown = weights(shape_of({**LLAMA_8B, "model_type": "brandnew"}), Serving(), None)
    assert plain and unknown
    assert plain.unsure == (
        "the weights' size is counted from the config; the checkpoint's files are exact",
    )
    assert unknown.unsure[1:] == ("the type 'brandnew' is not known here: counted like Llama's",)
    assert unknown.bytes_total == plain.bytes_total


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
        ({"quant_method": "fp8", "modules_to_not_convert": ["self_attn", "layers.0.mlp"]}, 8.46),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["self_attn"]}, 9.71),
        ({"quant_method": "compressed-tensors", "config_groups": {
            "group_0": {"weights": {"num_bits": 4, "group_size": 128}}}}, 5.31),
    ],
)  # fmt: skip
def test_bytes_follow_the_quantisation(quantisation: dict[str, Any] | None, gib: float) -> None:
    config = {**LLAMA_8B, **({"quantization_config": quantisation} if quantisation else {})}
    size = weights(shape_of(config), Serving(), None)
    assert size is not None
    assert round(size.bytes_total / GIB, 2) == gib


@pytest.mark.parametrize(
    ("flag", "method"),
    [("fp8", "fp8"), ("AWQ", "awq"), ("bitsandbytes", "bitsandbytes"), ("experts_int8", None)],
)
def test_quantization_flag_applies_to_plain_checkpoints(flag: str, method: str | None) -> None:
    by_flag = weights(shape_of(LLAMA_8B), Serving(quantization=flag), None)
    config = {**LLAMA_8B, **({"quantization_config": {"quant_method": method}} if method else {})}
    assert by_flag == weights(shape_of(config), Serving(), None)


def size_of(**quantisation: Any) -> int:
    config = {**LLAMA_8B, "quantization_config": quantisation}
    size = weights(shape_of(config), Serving(), None)
    assert size is not None
    return size.bytes_total


PROJECTED, REST = 6_979_321_856, 2 * 1_050_939_392


def test_bits_and_groups_are_read_as_each_method_spells_them() -> None:
    four, eight = PROJECTED * (0.5 + 2.5 / 128) + REST, PROJECTED * (1 + 3 / 128) + REST
    assert size_of(quant_method="awq") == size_of(quant_method="gptq", bits=4) == four
    assert size_of(quant_method="awq", w_bit=8) == size_of(quant_method="gptq", bits=8) == eight
    assert size_of(quant_method="awq", group_size=64) == PROJECTED * (0.5 + 2.5 / 64) + REST
    assert size_of(quant_method="awq", group_size=-1) == PROJECTED // 2 + REST
    assert size_of(quant_method="bitsandbytes") == PROJECTED * (0.5 + 4 / 64) + REST


@pytest.mark.parametrize(
    ("weight_format", "parameter_bytes"),
    [
        ({"num_bits": 1}, 1 / 8),
        ({"num_bits": 16}, 2),
        ({"num_bits": 8, "group_size": 0}, 1),
        ({"num_bits": 8, "group_size": 1}, 3),
    ],
)
def test_compressed_tensors_bits_and_groups_are_read(
    weight_format: dict[str, int], parameter_bytes: float
) -> None:
    groups = {"group_0": {"weights": weight_format}}
    size = size_of(quant_method="compressed-tensors", config_groups=groups)
    assert size == PROJECTED * parameter_bytes + REST


def test_unknown_method_lists_the_known_ones() -> None:
    with pytest.raises(UserError) as caught:
        weights(shape_of(LLAMA_8B), Serving(quantization="zzzz"), None)
    headline, methods = str(caught.value).splitlines()
    assert headline == "--quantization 'zzzz' is not known"
    assert methods.startswith("known: auto-round, auto_awq, auto_gptq, ")
    assert unknown_method(shape_of(LLAMA_8B)) is None
    fp8 = shape_of({**LLAMA_8B, "quantization_config": {"quant_method": "fp8"}})
    assert unknown_method(fp8) is None


def test_flag_without_bits_leaves_the_size_unknown() -> None:
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
def test_compressed_tensors_without_bits_have_no_size(group: Any) -> None:
    quantisation = {"quant_method": "compressed-tensors", "config_groups": group}
    shape = shape_of({**LLAMA_8B, "quantization_config": quantisation})
    assert weights(shape, Serving(), None) is None
    assert unknown_method(shape) == "compressed-tensors"


def test_only_the_experts_of_gpt_oss_are_quantised() -> None:
    config = {**GPT_OSS, "num_hidden_layers": 24, "num_local_experts": 32}
    size = weights(shape_of(config), Serving(), None)
    assert size is not None
    # A server logs: "Model loading took 13.72 GiB memory".
    assert size.bytes_total / GIB == pytest.approx(12.8, abs=0.1)


def test_latent_projections_are_replicated_on_every_device() -> None:
    size = weights(shape_of(DEEPSEEK_V3), Serving(tensor_parallel_size=8), None)
    assert size is not None
    assert size.bytes_per_device > size.bytes_total / 8


def test_largest_stage_counts_and_norms_are_on_every_device() -> None:
    serving = Serving(tensor_parallel_size=2, pipeline_parallel_size=2)
    size = weights(shape_of(LLAMA_8B), serving, None)
    assert size
    # The last stage: half the layers, the head, the last norm. Two bytes of each.
    layers, head, norms = PROJECTED // 2, 128256 * 4096, (2 * 16 + 1) * 4096
    assert size.bytes_per_device == (layers + head) // 2 * 2 + norms * 2 + ROTARY
    assert (size.source, size.parameters) == ("counted from the config", 8_030_261_248)
    uneven = weights(shape_of(LLAMA_8B), Serving(pipeline_parallel_size=3), None)
    assert uneven
    # 32 layers over 3 stages: 11, 11, 10. The first has 11 and the embedding.
    assert uneven.bytes_per_device == (PROJECTED // 32 * 11 + head + 2 * 11 * 4096) * 2 + ROTARY


def test_files_are_divided_over_devices_as_counted_parts_are() -> None:
    counted = weights(shape_of(LLAMA_8B), Serving(pipeline_parallel_size=3), None)
    assert counted
    shape, serving = shape_of(LLAMA_8B), Serving(pipeline_parallel_size=3)
    from_files = weights(shape, serving, counted.bytes_total)
    assert from_files and from_files.bytes_per_device == counted.bytes_per_device


def test_tied_head_is_on_the_first_and_on_the_last_stage() -> None:
    config = {**LLAMA_8B, "tie_word_embeddings": True, "num_hidden_layers": 2}
    one, two = (
        weights(shape_of(config), Serving(pipeline_parallel_size=stages), None) for stages in (1, 2)
    )
    assert one and two
    words, layer = 128256 * 4096 * 2, PROJECTED // 32 * 2
    assert one.bytes_per_device - two.bytes_per_device == layer + 2 * 4096 * 2
    assert two.bytes_per_device == words + layer + 3 * 4096 * 2 + ROTARY


def test_vocabulary_is_padded_and_key_value_heads_are_copied() -> None:
    def on_device(devices: int, **changes: Any) -> int:
        serving = Serving(tensor_parallel_size=devices)
        size = weights(shape_of({**LLAMA_8B, **changes}), serving, None)
        assert size
        return size.bytes_per_device

    # One word more is 64 rows more, in the embedding and in the head.
    assert on_device(1, vocab_size=128257) - on_device(1) == 2 * 64 * 4096 * 2
    # Eight heads on 16 devices: each has one, which is an eighth and not a sixteenth.
    norms = (2 * 32 + 1) * 4096 * 2 + ROTARY
    copied = 32 * 2 * 8 * 128 * 4096 * 2
    rest = on_device(1) - norms - copied
    assert on_device(16) == rest // 16 + copied // 8 + norms


def test_mxfp4_experts_are_padded_on_each_device() -> None:
    config = {**GPT_OSS, "num_hidden_layers": 24, "num_local_experts": 32}
    size = weights(shape_of(config), Serving(), None)
    assert size
    # "Model loading took 13.72 GiB memory" (gpt-oss-20b on one device): 2880 is padded to 3072
    # rows and 2944 columns by Marlin's kernels.
    assert size.bytes_per_device / GIB == pytest.approx(13.72, rel=0.01)


def test_replicated_parts_are_quantised() -> None:
    def replicated_bytes(**changes: Any) -> int:
        one_device, two_devices = (
            weights(shape_of({**DEEPSEEK_V3, **changes}), Serving(tensor_parallel_size=count), None)
            for count in (1, 2)
        )
        assert one_device and two_devices
        return 2 * two_devices.bytes_per_device - one_device.bytes_total

    quantised = replicated_bytes(
        quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]}
    )
    assert quantised < 0.8 * replicated_bytes(quantization_config=None)
