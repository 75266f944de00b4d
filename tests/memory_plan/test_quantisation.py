"""Lists of modules in quantised checkpoints are matched as vLLM matches them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from memory_plan.model_configs import LLAMA_8B, MADE
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import Serving
from pytest_vllm_gates.memory_plan.weights import unknown_method, weights

if TYPE_CHECKING:
    from pathlib import Path

MLP, ATTENTION = 3 * 4096 * 14336, 4096 * (2 * 4096 + 2 * 1024)
"""Parameters of one layer of Llama 8B."""
MOE = MADE["a shared expert with a gate"][0]
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
NVFP4_BYTES, FP8_SAVED = 0.5 + 1 / 16, 1


def total(config: dict[str, Any], **quantisation: Any) -> int:
    size = weights(shape_of({**config, "quantization_config": quantisation}), Serving(), None)
    assert size is not None
    return size.bytes_total


def kept(saved: float, **quantisation: Any) -> float:
    """Return how many parameters a list leaves as they are, each `saved` bytes larger."""
    names = {"ignore", "exclude_modules", "modules_to_not_convert", "dynamic", "extra_config"}
    without = {key: value for key, value in quantisation.items() if key not in names}
    return (total(LLAMA_8B, **quantisation) - total(LLAMA_8B, **without)) / saved


@pytest.mark.parametrize(
    ("ignored", "parameters"),
    [
        ([], 0),
        (["lm_head"], 0),
        (["model.layers.0.self_attn.q_proj"], 4096 * 4096),
        ([f"model.layers.{layer}.self_attn*" for layer in range(32)], 32 * ATTENTION),
        (["*self_attn*"], 32 * ATTENTION),
        (["*.mlp.down_proj", "model.layers.7.self_attn.o_proj"], 32 * MLP // 3 + 4096 * 4096),
        # A list's entry within a name counts too: layer 1 is within 1, 10 to 19.
        (["model.layers.1"], 11 * (ATTENTION + MLP)),
        (["model.layers.1.*"], ATTENTION + MLP),
        (["language_model.model.layers.31*"], ATTENTION + MLP),
        (["model.language_model.layers.31.mlp*"], MLP),
    ],
)
def test_modelopt_lists_have_numbers_parts_and_wildcards(
    ignored: list[str], parameters: int
) -> None:
    assert kept(2 - NVFP4_BYTES, **NVFP4, ignore=ignored) == pytest.approx(parameters)


def test_modelopt_list_in_a_file_of_its_own_is_read(tmp_path: Path) -> None:
    from pytest_vllm_gates.cli.plan import read_config  # noqa: PLC0415 - the command's reader

    inner = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["*self_attn*", "lm_head"]}
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    (tmp_path / "hf_quant_config.json").write_text(
        json.dumps({"producer": {"name": "modelopt"}, "quantization": inner})
    )
    _, config = read_config(tmp_path)
    beside = weights(shape_of(config), Serving(), None)
    assert beside and beside.bytes_total == total(LLAMA_8B, **NVFP4, ignore=["*self_attn*"])
    # A config's own table comes first.
    own = {**LLAMA_8B, "quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "config.json").write_text(json.dumps(own))
    assert read_config(tmp_path)[1]["quantization_config"] == {"quant_method": "fp8"}
    (tmp_path / "hf_quant_config.json").write_text("[]")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    with pytest.raises(UserError, match=r"hf_quant_config\.json: not"):
        read_config(tmp_path)


def test_mixed_precision_lists_each_module() -> None:
    layers = {f"model.layers.{layer}.mlp.up_proj": {"quant_algo": "FP8"} for layer in range(32)}
    layers["model.layers.3.self_attn.o_proj"] = {"quant_algo": "NVFP4"}
    mixed = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
    plain = weights(shape_of(LLAMA_8B), Serving(), None)
    assert plain
    saved = plain.bytes_total - total(LLAMA_8B, **mixed, quantized_layers=layers)
    assert saved == round(32 * MLP // 3 + 4096 * 4096 * (2 - NVFP4_BYTES))
    strange = {"model.layers.3.mlp.up_proj": {"quant_algo": "ZZ"}}
    config = {**LLAMA_8B, "quantization_config": {**mixed, "quantized_layers": strange}}
    assert unknown_method(shape_of(config)) == "modelopt"


FP8_CHANNELS = {"num_bits": 8, "type": "float", "strategy": "channel"}
INT4_GROUPS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
INT4_BYTES = 0.5 + 2 / 128


def test_compressed_tensors_groups_have_targets_of_their_own() -> None:
    groups = {
        "group_0": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8}},
        "group_1": {"targets": ["Linear"], "weights": INT4_GROUPS},
    }
    compressed = {"quant_method": "compressed-tensors", "config_groups": groups}
    rest = 2 * 2 * 128256 * 4096 + 2 * (2 * 32 + 1) * 4096
    expected = 32 * (ATTENTION + MLP * INT4_BYTES) + rest
    assert total(LLAMA_8B, **compressed) == expected
    reversed_groups = {"group_0": groups["group_1"], "group_1": groups["group_0"]}
    assert total(LLAMA_8B, **{**compressed, "config_groups": reversed_groups}) == expected


@pytest.mark.parametrize(
    ("ignored", "parameters"),
    [
        (["model.layers.0.mlp.down_proj"], MLP // 3),
        (["re:.*mlp.*"], 32 * MLP),
        (["re:.*layers\\.(0|31)\\..*", "lm_head"], 2 * (ATTENTION + MLP)),
        # A name is the whole name here, not a part of it.
        (["self_attn", "model.layers.1"], 0),
    ],
)
def test_compressed_tensors_lists_have_names_and_expressions(
    ignored: list[str], parameters: int
) -> None:
    groups = {"group_0": {"targets": ["Linear"], "weights": INT4_GROUPS}}
    compressed = {"quant_method": "compressed-tensors", "config_groups": groups}
    assert kept(2 - INT4_BYTES, **compressed, ignore=ignored) == parameters


def test_expression_that_is_none_is_named() -> None:
    groups = {"group_0": {"targets": ["re:(["], "weights": INT4_GROUPS}}
    with pytest.raises(UserError, match=r"'\(\[' is not a regular expression"):
        total(LLAMA_8B, quant_method="compressed-tensors", config_groups=groups)


def test_channels_have_a_scale_for_each_row() -> None:
    groups = {"group_0": {"targets": ["Linear"], "weights": FP8_CHANNELS}}
    by_channel = total(LLAMA_8B, quant_method="compressed-tensors", config_groups=groups)
    groups = {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8}}}
    whole = total(LLAMA_8B, quant_method="compressed-tensors", config_groups=groups)
    rows = 4096 * 3 + 2 * 1024 + 2 * 14336
    assert by_channel - whole == 4 * 32 * rows


def test_experts_alone_are_quantised_where_all_else_is_listed() -> None:
    groups = {"group_0": {"targets": ["Linear"], "weights": INT4_GROUPS}}
    ignored = ["re:.*self_attn.*", "re:.*shared_expert.*", "re:.*mlp\\.(gate|up|down)_proj.*"]
    compressed = {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ignored}
    plain = weights(shape_of(MOE), Serving(), None)
    assert plain
    assert plain.bytes_total - total(MOE, **compressed) == round(1_572_864 * (2 - INT4_BYTES))
    targets = {"group_0": {"targets": ["re:.*mlp.experts.*_proj"], "weights": INT4_GROUPS}}
    named = {"quant_method": "compressed-tensors", "config_groups": targets}
    assert total(MOE, **named) == total(MOE, **compressed)


@pytest.mark.parametrize(
    ("quantisation", "parameters"),
    [
        ({"modules_to_not_convert": ["model.layers.0.mlp.experts.0.gate_proj"]}, 393_216),
        ({"modules_to_not_convert": ["model.layers.0.self_attn.q_proj"]}, 65_536),
        ({"ignored_layers": ["model.layers.0.mlp.experts"]}, 393_216),
        ({"ignored_layers": ["self_attn", "mlp", "model.layers.0"]}, 0),
    ],
)
def test_fp8_lists_whole_names(quantisation: dict[str, Any], parameters: int) -> None:
    difference = total(MOE, quant_method="fp8", **quantisation) - total(MOE, quant_method="fp8")
    assert difference == parameters * FP8_SAVED


def test_gptq_modules_have_bits_of_their_own() -> None:
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    four, eight = 0.5 + 2.5 / 128, 1 + 3 / 128
    excepted: dict[str, dict[str, int]] = {"-:.*self_attn.*": {}}
    assert kept(2 - four, **gptq, dynamic=excepted) == pytest.approx(32 * ATTENTION)
    finer = {"+:.*layers\\.0\\..*": {"bits": 8}}
    assert kept(eight - four, **gptq, dynamic=finer) == pytest.approx(ATTENTION + MLP)
    own = {"model.layers.5.mlp.up_proj": {"bits": 16}, "lm_head": {"bits": 16}}
    rounded = {**gptq, "quant_method": "auto-round"}
    assert kept(2 - four, **rounded, extra_config=own) == pytest.approx(MLP // 3)
    head = total(LLAMA_8B, **gptq) - total(LLAMA_8B, **gptq, lm_head=True)
    assert head == round(128256 * 4096 * (2 - four))


def test_awq_lists_parts_and_bitsandbytes_components() -> None:
    four = 0.5 + 2.5 / 128
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    assert kept(2 - four, **awq, modules_to_not_convert=["self_attn"]) == pytest.approx(
        32 * ATTENTION
    )
    bits = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    skipped = total(LLAMA_8B, **bits, llm_int8_skip_modules=["o_proj", "attn"])
    assert skipped - total(LLAMA_8B, **bits) == 32 * 4096 * 4096


@pytest.mark.parametrize("method", [{"quant_method": "awq"}, {"quant_method": "modelopt",
                                                               "quant_algo": "FP8"}])  # fmt: skip
def test_list_with_a_router_leaves_the_experts_quantised(method: dict[str, Any]) -> None:
    key = "modules_to_not_convert" if method["quant_method"] == "awq" else "ignore"
    quantised = total(MOE, **method)
    # "gate" is within "shared_expert.gate_up_proj", and not within "experts".
    saved = 2 - (0.5 + 2.5 / 128) if method["quant_method"] == "awq" else 1
    difference = total(MOE, **method, **{key: ["gate"]}) - quantised
    assert difference == pytest.approx(393_216 * 2 / 3 * saved)
