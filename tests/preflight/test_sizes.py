"""Dividing a model and fitting it into memory, good and bad."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from machines import GIB, recorded
from situations import CPU, DEEPSEEK, HOPPER, LANE, QWEN, check, with_gpus

from pytest_vllm_gates.checkpoints.files import Model
from pytest_vllm_gates.preflight.types import Check, CheckState


@pytest.mark.parametrize(
    ("serve", "environment", "state", "message"),
    [
        ({"tensor_parallel_size": 8}, {}, CheckState.OK, "8 of 8"),
        ({"tensor_parallel_size": 16}, {}, CheckState.FAILS,
         "World size (16) is larger than the number of available GPUs (8) in this node: "
         "tensor_parallel_size 16 times pipeline_parallel_size 1"),
        ({"tensor_parallel_size": 4, "pipeline_parallel_size": 2},
         {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, CheckState.FAILS,
         "World size (8) is larger than the number of available GPUs (4) in this node: "
         "tensor_parallel_size 4 times pipeline_parallel_size 2"),
        ({"tensor_parallel_size": 16, "nnodes": 2}, {}, CheckState.NOT_APPLICABLE,
         "the ranks are spread over several nodes"),
        ({"tensor_parallel_size": 16, "distributed_executor_backend": "ray"}, {},
         CheckState.NOT_APPLICABLE, "the ranks are spread over several nodes"),
    ],
)  # fmt: skip
def test_gpus_for_every_rank(
    serve: dict[str, Any], environment: dict[str, str], state: CheckState, message: str
) -> None:
    result = check("gpu_count", serve=serve, environment=environment)
    assert (result.state, result.what) == (state, message)
    if environment:
        assert result.fix == "unset CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("serve", "environment", "state", "message"),
    [
        ({}, {}, CheckState.NOT_APPLICABLE, "one rank uses all cores"),
        ({"tensor_parallel_size": 2}, {}, CheckState.OK, "2 NUMA nodes for 2 ranks"),
        ({"tensor_parallel_size": 2, "pipeline_parallel_size": 2}, {}, CheckState.FAILS,
         "Not enough allowed NUMA nodes to bind threads of 4 local CPUWorkers: there are 2"),
        ({"tensor_parallel_size": 2}, {"CPU_VISIBLE_MEMORY_NODES": "1"}, CheckState.FAILS,
         "Not enough allowed NUMA nodes to bind threads of 2 local CPUWorkers: there is 1"),
        ({"tensor_parallel_size": 4}, {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}, CheckState.OK,
         "4 ranks, not bound to cores"),
        ({"tensor_parallel_size": 2}, {"VLLM_CPU_OMP_THREADS_BIND": "0-3|4-7"}, CheckState.OK,
         "VLLM_CPU_OMP_THREADS_BIND gives each of 2 ranks its cores"),
        ({"tensor_parallel_size": 2}, {"VLLM_CPU_OMP_THREADS_BIND": "0-7"}, CheckState.FAILS,
         "VLLM_CPU_OMP_THREADS_BIND: the number of lists of cores, 1, doesn't match local world "
         "size 2"),
        ({"tensor_parallel_size": 4}, {"VLLM_CPU_SIM_MULTI_NUMA": "1"}, CheckState.OK,
         "4 cores for 4 ranks on parts of one NUMA node"),
        ({"tensor_parallel_size": 8}, {"VLLM_CPU_SIM_MULTI_NUMA": "1"}, CheckState.FAILS,
         "4 cores for 8 ranks"),
        ({"tensor_parallel_size": 8, "nnodes": 4}, {}, CheckState.NOT_APPLICABLE,
         "the ranks are spread over several nodes"),
    ],
)  # fmt: skip
def test_a_numa_node_for_every_rank(
    serve: dict[str, Any], environment: dict[str, str], state: CheckState, message: str
) -> None:
    machine = replace(HOPPER, numa_nodes=2, cores=4)
    result = check("cpu_ranks", bundle=CPU, machine=machine, serve=serve, environment=environment)
    assert (result.state, result.what) == (state, message)


def test_no_gpus_are_counted_without_a_gpu() -> None:
    assert check("gpu_count", machine=replace(HOPPER, devices=())).state is CheckState.UNKNOWN
    assert check("gpu_count", machine=None).state is CheckState.UNKNOWN


def test_unknown_numa_nodes_are_unknown() -> None:
    two: dict[str, Any] = {"bundle": CPU, "serve": {"tensor_parallel_size": 2}}
    assert check("cpu_ranks", machine=None, **two).state is CheckState.UNKNOWN
    machine = replace(HOPPER, numa_nodes=None)
    assert check("cpu_ranks", machine=machine, **two).state is CheckState.UNKNOWN
    assert check("cpu_ranks", serve=two["serve"]).state is CheckState.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("name", "config", "size", "state", "message"),
    [
        ("attention_heads", QWEN, 4, CheckState.OK, "24 heads over 4 ranks"),
        ("attention_heads", QWEN, 16, CheckState.FAILS,
         "Total number of attention heads (24) must be divisible by tensor parallel size (16)"),
        ("attention_heads", {"a": 1}, 2, CheckState.UNKNOWN,
         "config.json does not contain the number of attention heads"),
        ("kv_heads", QWEN, 4, CheckState.OK, "1 of 4 on each of 4 ranks"),
        ("kv_heads", QWEN, 8, CheckState.OK, "each of 4 copied to 2 of 8 ranks"),
        ("kv_heads", QWEN, 6, CheckState.FAILS,
         "6 is not divisible by 4: 4 heads of keys and values cannot be divided evenly over "
         "tensor_parallel_size 6"),
        ("kv_heads", DEEPSEEK, 6, CheckState.NOT_APPLICABLE,
         "with latent attention every rank has one whole cache for all heads"),
        ("kv_heads", {"a": 1}, 2, CheckState.UNKNOWN,
         "config.json does not contain the number of heads of keys and values"),
        ("quantization_blocks", DEEPSEEK, 8, CheckState.OK,
         "whole blocks of 128x128 on each of 8 ranks"),
        ("quantization_blocks", DEEPSEEK, 32, CheckState.FAILS,
         "Weight input_size_per_partition = 576 is not divisible by weight quantization block_k = "
         "128 (intermediate_size 18432 over 32 ranks)"),
        ("quantization_blocks", QWEN, 8, CheckState.NOT_APPLICABLE,
         "no layer that is quantised in blocks is split"),
        ("quantization_blocks", DEEPSEEK | {"quantization_config": {
            "quant_method": "fp8", "weight_block_size": 128}}, 8, CheckState.UNKNOWN,
         "weight_block_size 128 is not a pair of sizes"),
        ("quantization_blocks", {
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, 8,
         CheckState.UNKNOWN, "config.json does not contain the width of the layers"),
        ("quantization_blocks", DEEPSEEK | {"quantization_config": {
            "quant_method": "fp8", "weight_block_size": [128, 128],
            "modules_to_not_convert": ["model.layers.0.mlp.down_proj"]}}, 32, CheckState.UNKNOWN,
         "some layers are excluded from the quantisation"),
    ],
)  # fmt: skip
def test_sizes_must_divide_over_ranks(
    name: str, config: dict[str, Any], size: int, state: CheckState, message: str
) -> None:
    result = check(name, model=Model("m", config), serve={"tensor_parallel_size": size})
    assert (result.state, result.what) == (state, message)


def test_expert_blocks_are_unknown_unless_experts_are_parallel() -> None:
    narrow = {
        **DEEPSEEK, "num_experts": 128, "moe_intermediate_size": 1536, "first_k_dense_replace": 0,
    }  # fmt: skip
    model = Model("m", narrow)
    result = check("quantization_blocks", model=model, serve={"tensor_parallel_size": 8})
    assert result.state is CheckState.UNKNOWN
    assert "each rank has 192 of the experts' 1536 columns" in result.what
    parallel_experts = {"tensor_parallel_size": 8, "enable_expert_parallel": True}
    assert check("quantization_blocks", model=model, serve=parallel_experts).state is CheckState.OK


def test_fix_names_a_fitting_size() -> None:
    serve = {"tensor_parallel_size": 32}
    result = check("quantization_blocks", model=Model("m", DEEPSEEK), serve=serve)
    assert result.fix.startswith("tensor_parallel_size = 24 in [serve]")


@pytest.mark.parametrize(("version", "share"), [("0.18.1", "0.9"), ("0.32.0", "0.92")])
def test_a_vllm_that_is_not_installed_has_its_versions_default(version: str, share: str) -> None:
    lane = replace(LANE, utilization=None, versions={"vllm": version})
    red = check("free_memory", machine=with_gpus(HOPPER, free_bytes=GIB), bundle=lane)
    assert f"utilization ({share}, " in red.what


def test_free_memory_of_gpus() -> None:
    busy = with_gpus(HOPPER, free_bytes=60 * GIB)
    red = check("free_memory", machine=busy, serve={"gpu_memory_utilization": 0.9})
    assert red.what == (
        "Free memory on NVIDIA H100 80GB HBM3 0 (60.00 GiB of 79.11 GiB) is less than desired GPU "
        "memory utilization (0.9, 71.20 GiB)"
    )
    assert "gpu_memory_utilization = 0.75 in [serve]" in red.fix
    assert check("free_memory").state is CheckState.OK
    explicit = check("free_memory", machine=busy, serve={"kv_cache_memory_bytes": 10**9})
    assert explicit.state is CheckState.NOT_APPLICABLE
    hidden = check("free_memory", machine=recorded("a100mig"))
    assert hidden.what == "the GPUs do not report their memory"


def test_unknown_utilization_is_unknown() -> None:
    silent = replace(LANE, utilization=None, versions={})
    assert check("free_memory", bundle=silent).state is CheckState.UNKNOWN
    assert check("free_memory", bundle=replace(silent, device="cpu")).state is CheckState.UNKNOWN
    set_by_flag = check("free_memory", bundle=silent, serve={"gpu_memory_utilization": 0.5})
    assert set_by_flag.state is CheckState.OK
    assert check("free_memory", bundle=replace(LANE, device=None)).state is CheckState.UNKNOWN
    untold = replace(HOPPER, available_bytes=None)
    assert check("free_memory", bundle=CPU, machine=untold).state is CheckState.UNKNOWN


def test_only_used_gpus_must_be_free() -> None:
    first, *other_gpus = HOPPER.devices
    busy = replace(HOPPER, devices=(first, *(replace(gpu, free_bytes=0) for gpu in other_gpus)))
    assert check("free_memory", machine=busy).state is CheckState.OK
    two_ranks = check("free_memory", machine=busy, serve={"tensor_parallel_size": 2})
    assert two_ranks.what.startswith("Free memory on NVIDIA H100 80GB HBM3 1 (0.00 GiB")


def test_unified_memory_is_machine_memory() -> None:
    spark = recorded("gb10", available_bytes=100 * GIB)
    red = check("free_memory", machine=spark)
    assert red.what == (
        "Free memory on NVIDIA GB10 0 (100.00 GiB of 128.00 GiB of the memory it shares with the "
        "machine) is less than desired GPU memory utilization (0.92, 117.76 GiB)"
    )
    assert check("free_memory", machine=recorded("gb10")).state is CheckState.OK


@pytest.mark.parametrize(
    ("environment", "serve", "state", "message"),
    [
        ({"VLLM_CPU_KVCACHE_SPACE": "1"}, {}, CheckState.OK,
         "120.00 GiB available, 1.00 GiB requested (VLLM_CPU_KVCACHE_SPACE=1)"),
        ({"VLLM_CPU_KVCACHE_SPACE": "200"}, {}, CheckState.FAILS,
         "Available memory (120.00 GiB of 128.00 GiB) is less than requested "
         "(VLLM_CPU_KVCACHE_SPACE=200: 200.00 GiB)"),
        ({"VLLM_CPU_KVCACHE_SPACE": "lots"}, {}, CheckState.FAILS,
         "VLLM_CPU_KVCACHE_SPACE='lots' is not an integer number of GiB"),
        ({}, {"gpu_memory_utilization": 0.99}, CheckState.FAILS,
         "Available memory (120.00 GiB of 128.00 GiB) is less than requested "
         "(gpu_memory_utilization 0.99: 126.72 GiB)"),
        ({}, {"kv_cache_memory_bytes": GIB}, CheckState.OK,
         f"120.00 GiB available, 1.00 GiB requested (kv_cache_memory_bytes {GIB})"),
    ],
)  # fmt: skip
def test_memory_on_the_cpu(
    environment: dict[str, str], serve: dict[str, Any], state: CheckState, message: str
) -> None:
    result = check("free_memory", bundle=CPU, environment=environment, serve=serve)
    assert (result.state, result.what) == (state, message)


def test_utilization_of_one_numa_node_is_unknown() -> None:
    two = replace(HOPPER, numa_nodes=2)
    arguments: dict[str, Any] = {"bundle": CPU, "serve": {"gpu_memory_utilization": 0.99}}
    assert check("free_memory", machine=two, **arguments).state is CheckState.UNKNOWN
    assert (
        check("free_memory", machine=replace(two, numa_nodes=1), **arguments).state
        is CheckState.FAILS
    )


# 2 x 8 heads x 128 x 2 bytes x 32 layers: 128 KiB a token, 1 GiB for its whole context.
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 32,
    "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip


def cache(**arguments: Any) -> Check:
    return check("kv_cache", **({"model": Model("m", LLAMA)} | arguments))


def test_one_request_of_full_length_must_fit_into_the_cache() -> None:
    result = cache(serve={"kv_cache_memory_bytes": 2 * GIB})
    assert (result.state, result.what) == (
        CheckState.OK, "1.00 GiB for one request of 8192 tokens, 2.00 GiB",
    )  # fmt: skip
    result = cache(serve={"kv_cache_memory_bytes": GIB // 2})
    assert (result.state, result.what) == (
        CheckState.FAILS,
        "To serve at least one request with the model's max seq len (8192), 1.00 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (0.50 GiB)",
    )
    # One block of 16 tokens is always vLLM's own.
    assert result.fix.startswith("max_model_len = 4080 in [serve], or more memory")
    short = {"kv_cache_memory_bytes": GIB // 2, "max_model_len": 4080}
    assert cache(serve=short).state is CheckState.OK
    assert cache(serve=short | {"max_model_len": 4081}).state is CheckState.FAILS
    assert cache().state is CheckState.OK
    # The weights alone are 15 GiB of the GPU's 80.
    assert cache(serve={"gpu_memory_utilization": 0.15}).state is CheckState.FAILS
    assert cache(bundle=replace(LANE, utilization=0.15)).state is CheckState.FAILS


@pytest.mark.parametrize(
    ("space", "state"),
    [
        ("2", CheckState.OK),
        (" 2 ", CheckState.OK),
        ("1", CheckState.FAILS),
        ("0", CheckState.UNKNOWN),
        ("much", CheckState.UNKNOWN),
    ],
)
def test_cpu_cache_size_is_read_from_its_variable(space: str, state: CheckState) -> None:
    serve = {"kv_cache_memory_bytes": 1024}
    environment = {"VLLM_CPU_KVCACHE_SPACE": space}
    assert cache(bundle=CPU, environment=environment, serve=serve).state is state


@pytest.mark.parametrize(
    "arguments",
    [
        {"model": Model("m", {})},
        {"bundle": replace(LANE, device="rocm")},
        {"bundle": CPU},
        {"machine": None},
        {"bundle": replace(LANE, utilization=None, versions={})},
        {"machine": replace(HOPPER, devices=())},
        {"machine": recorded("a100mig")},
    ],
)
def test_cache_is_unknown_without_a_memory_size(arguments: dict[str, Any]) -> None:
    result = cache(**arguments)
    assert (result.state, result.what) == (
        CheckState.UNKNOWN, "no memory plan is possible for this model on this machine",
    )  # fmt: skip


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llama", "max_position_embeddings": 8192},
        {**LLAMA, "is_encoder_decoder": True},
        {**LLAMA, "compress_ratios": [4]},
    ],
)
def test_cache_is_unknown_without_a_plan(config: dict[str, Any]) -> None:
    result = cache(model=Model("m", config), serve={"kv_cache_memory_bytes": GIB})
    assert result.state is CheckState.UNKNOWN
    assert result.what.startswith("no plan can be made: ")


def test_cache_is_unknown_if_weights_are_not_countable() -> None:
    strange = {**LLAMA, "quantization_config": {"quant_method": "strange"}}
    result = cache(model=Model("m", strange))
    assert (result.state, result.what) == (
        CheckState.UNKNOWN, "the model's memory on this machine cannot be computed",
    )  # fmt: skip
