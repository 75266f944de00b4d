"""Checkpoints before a boot, good and bad, with real models' configs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from situations import DEEPSEEK, LANE, QWEN, check

from pytest_vllm_gates.checkpoints.files import NO_WEIGHTS, Model
from pytest_vllm_gates.environment.types import Bundle
from pytest_vllm_gates.preflight.types import CheckState


def test_unavailable_checkpoint_fails() -> None:
    gated = Model("org/x", problem="checkpoint org/x: 401 Client Error\nlog in: hf auth login")
    red = check("checkpoint", model=gated)
    assert (red.what, red.fix) == ("checkpoint org/x: 401 Client Error", "log in: hf auth login")
    assert red.cause.startswith("the checkpoint is gated")
    for words, cause in (
        ("404 Client Error. Repository Not Found", "no checkpoint has this name"),
        (
            "Cannot find a snapshot and outgoing traffic has been disabled",
            "the Hub cannot be reach",
        ),
        ("/w has no config.json: it is not a checkpoint", "the name is not a checkpoint"),
    ):
        problem = Model("org/x", problem=f"checkpoint org/x: {words}")
        assert check("checkpoint", model=problem).cause.startswith(cause)
    half = Model("/w", QWEN, weights_problem="model.safetensors is cut off: 8 bytes of 16")
    assert check("checkpoint", model=half).what == "/w: model.safetensors is cut off: 8 bytes of 16"
    assert check("checkpoint", model=half, renderer=True).state is CheckState.OK
    assert check("checkpoint", model=half, serve={"load_format": "dummy"}).state is CheckState.OK
    assert check("checkpoint").state is CheckState.OK


@pytest.mark.parametrize(
    ("config", "state", "message"),
    [
        ({"architectures": ["DeepseekV3ForCausalLM"]}, CheckState.OK,
         "vLLM 0.32.0 has DeepseekV3ForCausalLM"),
        ({"architectures": ["NewForCausalLM"]}, CheckState.FAILS,
         "Model architectures ['NewForCausalLM'] are not supported by vLLM 0.32.0, nor by "
         "transformers 5.19.0"),
        ({"architectures": ["Phi3SmallForCausalLM"]}, CheckState.FAILS,
         "Model architecture Phi3SmallForCausalLM was supported in vLLM until v0.9.2, but is not "
         "in 0.32.0"),
        ({"architectures": ["DeepseekV3ForSequenceClassification"]}, CheckState.UNKNOWN,
         "vLLM does not have DeepseekV3ForSequenceClassification, but may convert a similar model "
         "to it"),
        ({"architectures": ["OlmoForCausalLM"]}, CheckState.UNKNOWN,
         "vLLM does not have OlmoForCausalLM, but may serve it through transformers"),
        ({"architectures": ["Own"], "auto_map": {"AutoModel": "x.Y"}}, CheckState.UNKNOWN,
         "vLLM 0.32.0 does not have Own; a plugin (none is installed) or the checkpoint's "
         "code may"),
        ({"model_type": "x"}, CheckState.UNKNOWN, "config.json names no architecture"),
        ({"architectures": "Qwen"}, CheckState.UNKNOWN, "config.json names no architecture"),
        ({}, CheckState.UNKNOWN, "the checkpoint's config.json cannot be read"),
    ],
)  # fmt: skip
def test_architectures(config: dict[str, Any], state: CheckState, message: str) -> None:
    result = check("architecture", model=Model("m", config))
    assert (result.state, result.what) == (state, message)


def test_plugin_makes_a_missing_architecture_unknown() -> None:
    bundle = replace(LANE, plugins=("vllm_more",))
    model = Model("m", {"architectures": ["New"], "model_type": "new"})
    assert check("architecture", model=model, bundle=bundle).state is CheckState.UNKNOWN
    assert check("model_type", model=model, bundle=bundle).state is CheckState.UNKNOWN
    assert check("architecture", model=model, bundle=Bundle()).state is CheckState.UNKNOWN


def test_model_types() -> None:
    new = {"model_type": "qwen9"}
    red = check("model_type", model=Model("m", new))
    assert red.what == (
        "the checkpoint has model type `qwen9`, which neither transformers 5.19.0 nor vLLM 0.32.0 "
        "recognises"
    )
    custom = Model("m", new | {"auto_map": {"AutoConfig": "x.Y"}})
    assert "which is not allowed to run" in check("model_type", model=custom).what
    trusted = check("model_type", model=custom, serve={"trust_remote_code": True})
    assert trusted.state is CheckState.OK
    assert check("model_type").state is CheckState.OK
    assert check("model_type", model=Model("m")).state is CheckState.UNKNOWN
    assert check("model_type", model=Model("m", {"a": 1})).state is CheckState.UNKNOWN


def test_parsers() -> None:
    serve = {"reasoning_parser": "qwen35"}
    red = check("parsers", serve=serve, unknown_parser="this vLLM has no reasoning parser 'qwen35'")
    assert red.what == "this vLLM has no reasoning parser 'qwen35'"
    assert check("parsers", serve=serve).what == "reasoning_parser qwen35"
    assert check("parsers", serve=serve, parsers_known=False).state is CheckState.UNKNOWN
    assert check("parsers").state is CheckState.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("config", "serve", "state", "message"),
    [
        (QWEN, {"max_model_len": 262145}, CheckState.FAILS,
         "User-specified max_model_len (262145) is greater than the derived max_model_len "
         "(max_position_embeddings=262144)"),
        (QWEN, {"max_model_len": "262k"}, CheckState.OK,
         "262000 of 262144 (max_position_embeddings)"),
        (QWEN, {"max_model_len": "256K"}, CheckState.OK,
         "262144 of 262144 (max_position_embeddings)"),
        (QWEN, {"max_model_len": -1}, CheckState.OK,
         "not set; the model's length is 262144 (max_position_embeddings)"),
        (QWEN, {"max_model_len": 300000, "hf_overrides": {"x": 1}}, CheckState.UNKNOWN,
         "300000 is more than the config's 262144, which --hf-overrides changes"),
        # YaRN has scaled the length in the config already, linear scaling has not.
        (DEEPSEEK, {"max_model_len": 163841}, CheckState.FAILS,
         "User-specified max_model_len (163841) is greater than the derived max_model_len "
         "(max_position_embeddings=163840)"),
        ({"max_position_embeddings": 8192, "rope_scaling": {"type": "linear", "factor": 4.0}},
         {"max_model_len": 32768}, CheckState.OK, "32768 of 32768 (max_position_embeddings)"),
        ({"max_position_embeddings": 8192, "model_type": "gemma3_text",
          "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0}}},
         {"max_model_len": 8193}, CheckState.FAILS,
         "User-specified max_model_len (8193) is greater than the derived max_model_len "
         "(max_position_embeddings=8192)"),
        ({"max_position_embeddings": 8192, "rope_parameters": {
          "full_attention": {"rope_type": "linear", "factor": 8.0}}},
         {"max_model_len": 65536}, CheckState.OK, "65536 of 65536 (max_position_embeddings)"),
        ({"max_position_embeddings": 8192, "sliding_window": 4096},
         {"max_model_len": 8192, "disable_sliding_window": True}, CheckState.FAILS,
         "User-specified max_model_len (8192) is greater than the derived max_model_len "
         "(sliding_window=4096)"),
        ({"max_position_embeddings": 8192, "seq_length": 2048}, {}, CheckState.OK,
         "not set; the model's length is 2048 (seq_length)"),
        ({"hidden_size": 64}, {"max_model_len": 9}, CheckState.UNKNOWN,
         "config.json does not contain the length of the model's context"),
        ({"max_position_embeddings": "long"}, {"max_model_len": 9}, CheckState.UNKNOWN,
         "config.json does not contain the length of the model's context"),
    ],
)  # fmt: skip
def test_lengths(
    config: dict[str, Any], serve: dict[str, Any], state: CheckState, message: str
) -> None:
    result = check("max_model_len", model=Model("m", config), serve=serve)
    assert (result.state, result.what) == (state, message)


def test_longer_length_can_be_allowed_by_a_variable() -> None:
    arguments: dict[str, Any] = {"serve": {"max_model_len": 300000}}
    assert check("max_model_len", **arguments).state is CheckState.FAILS
    allowed = {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}
    assert check("max_model_len", environment=allowed, **arguments).state is CheckState.OK


def test_folder_of_a_tokenizer_alone_can_have_its_prompts_judged() -> None:
    alone = Model("./w", QWEN, weights_problem=f"{NO_WEIGHTS}: no *.safetensors")
    red = check("checkpoint", model=alone)
    assert red.state is CheckState.FAILS
    assert red.what == "./w: it has no weights: no *.safetensors"
    assert red.cause == "the folder has only the files of a config or a tokenizer"
    assert red.fix.endswith("pytest --model ./w -m chat_template")
    assert check("checkpoint", model=alone, renderer=True).state is CheckState.OK


def test_length_of_a_listed_checkpoint_is_judged_without_its_config() -> None:
    unseen = {"model": Model("zai-org/GLM-4.6", unseen="offline"), "native": 202752}
    red = check("max_model_len", serve={"max_model_len": 300000}, **unseen)
    assert red.state is CheckState.FAILS
    assert red.what == (
        "max_model_len (300000) is more than the 202752 tokens that zai-org/GLM-4.6 was made for"
    )
    assert "the figure is from the family's file" in red.cause
    assert red.fix.startswith("max_model_len = 202752 in [serve]")
    for serve in ({"max_model_len": 202752}, {"max_model_len": "auto"}, {}):
        assert check("max_model_len", serve=serve, **unseen).state is CheckState.UNKNOWN
    scaled = {"max_model_len": 300000, "hf_overrides": {"rope_parameters": {"factor": 4.0}}}
    assert check("max_model_len", serve=scaled, **unseen).state is CheckState.UNKNOWN
    allowed = {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}
    longer = check("max_model_len", serve={"max_model_len": 300000}, environment=allowed, **unseen)
    assert longer.state is CheckState.UNKNOWN


def test_the_config_decides_where_it_can_be_read() -> None:
    found = check("max_model_len", serve={"max_model_len": 262144}, native=8192)
    assert found.state is CheckState.OK


def test_quantizations() -> None:
    red = check("quantization", model=Model("m", {"quantization_config": {"quant_method": "exl3"}}))
    assert red.what == (
        "Unknown quantization method: exl3. vLLM 0.32.0 has awq, compressed-tensors, fp8"
    )
    assert check("quantization", model=Model("m", DEEPSEEK)).what == "vLLM 0.32.0 has fp8"
    nested = {"text_config": {"compression_config": {"quant_method": "compressed_tensors"}}}
    assert check("quantization", model=Model("m", nested)).state is CheckState.OK
    assert check("quantization", serve={"quantization": "fp9"}).state is CheckState.FAILS
    rounded = Model("m", {"quantization_config": {"quant_method": "auto-round"}})
    assert check("quantization", model=rounded).state is CheckState.FAILS
    taking = replace(LANE, taken_over=frozenset({"auto-round"}))
    assert check("quantization", model=rounded, bundle=taking).state is CheckState.OK
    assert check("quantization").state is CheckState.NOT_APPLICABLE
    nameless = Model("m", {"quantization_config": {"bits": 4}})
    assert check("quantization", model=nameless).state is CheckState.UNKNOWN


UNLISTED = replace(
    LANE, architectures=frozenset(), model_types=frozenset(), quantizations=frozenset()
)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("checkpoint", {"model": Model("m", unseen="not looked at\nlonger")}, "not looked at"),
        ("architecture", {"bundle": UNLISTED},
         "the architectures of the lane's vLLM cannot be listed"),
        ("architecture", {"serve": {"hf_overrides": {"architectures": ["X"]}}},
         "--hf-overrides may change the architecture"),
        ("model_type", {"bundle": UNLISTED},
         "the model types of the lane's transformers cannot be listed"),
        ("max_model_len", {"model": Model("m", {}), "serve": {"max_model_len": 9}},
         "the checkpoint's config.json cannot be read"),
        ("quantization", {"model": Model("m", {})},
         "the checkpoint's config.json cannot be read"),
        ("quantization", {"model": Model("m", DEEPSEEK), "bundle": UNLISTED},
         "the quantisations of the lane's vLLM cannot be listed; this is fp8"),
        ("quantization", {"serve": {"quantization": "own"},
                          "bundle": replace(LANE, plugins=("theirs",))},
         "theirs may add own"),
    ],
)  # fmt: skip
def test_missing_facts_are_unknown(name: str, arguments: dict[str, Any], message: str) -> None:
    result = check(name, **arguments)
    assert (result.state, result.what) == (CheckState.UNKNOWN, message)


def test_tokenizer_length_limits_max_model_len() -> None:
    config = {"max_position_embeddings": 4096, "model_max_length": 8192}
    result = check("max_model_len", model=Model("m", config), serve={"max_model_len": 8192})
    assert (result.state, result.what) == (CheckState.OK, "8192 of 8192 (model_max_length)")
