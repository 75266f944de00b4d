"""Situations before a boot, of recorded machines and real models' configs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from machines import recorded

from pytest_vllm_gates.checkpoints.files import Model
from pytest_vllm_gates.environment.types import Bundle, Code, Kernels, Library
from pytest_vllm_gates.machine.types import Machine, NvidiaDriver
from pytest_vllm_gates.preflight import checks as preflight_checks
from pytest_vllm_gates.preflight.types import Check, CheckState, Situation

WHEEL = Kernels((75, 80, 86, 90, 100, 120), ptx=(120,))
CODE = frozenset({frozenset(map(Code, WHEEL.machine_code))})
LIBRARIES = (Library("vllm/_C.abi3.so", CODE), Library("nvidia/nccl/lib/libnccl.so.2", CODE))
LANE = Bundle(
    versions={
        "vllm": "0.32.0", "torch": "2.13.0", "transformers": "5.19.0", "tokenizers": "0.23.3",
    },
    locations={"vllm": "/site/vllm"},
    device="cuda",
    torch_cuda="13.0",
    torch_kernels=WHEEL,
    vllm_kernels=WHEEL,
    libraries=LIBRARIES,
    architectures=frozenset({"Qwen3_5ForConditionalGeneration", "DeepseekV3ForCausalLM"}),
    gone={"Phi3SmallForCausalLM": "0.9.2"},
    transformers_architectures=frozenset({"OlmoForCausalLM"}),
    model_types=frozenset({"qwen3_5", "deepseek_v3", "gemma3_text"}),
    utilization=0.92,
    quantizations=frozenset({"fp8", "awq", "compressed-tensors"}),
)  # fmt: skip
CPU = replace(LANE, device="cpu", torch_cuda=None, torch_kernels=None, vllm_kernels=None,
              libraries=())  # fmt: skip
# The sizes of Qwen3.5-27B (its text nested, as multimodal configs have it) and of DeepSeek V3.
QWEN: dict[str, Any] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "text_config": {
        "model_type": "qwen3_5_text", "num_attention_heads": 24, "num_key_value_heads": 4,
        "intermediate_size": 17408, "max_position_embeddings": 262144, "head_dim": 256,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000},
    },
}  # fmt: skip
DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3", "num_attention_heads": 128, "num_key_value_heads": 128,
    "kv_lora_rank": 512, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "first_k_dense_replace": 3, "max_position_embeddings": 163840,
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}  # fmt: skip
HOPPER = recorded("h100x8", driver=NvidiaDriver("580.95.05", "13.0", "NVML"))


def situation(**changes: Any) -> Situation:
    defaults: dict[str, Any] = {
        "lane": "cuda", "machine": HOPPER, "bundle": LANE, "model": Model("org/model", QWEN),
    }  # fmt: skip
    return Situation(**(defaults | changes))


def check(name: str, **changes: Any) -> Check:
    (result,) = preflight_checks.run(situation(**changes), [name])
    assert result.name == name
    if result.state is CheckState.FAILS:
        assert result.cause and result.fix
    return result


def with_gpus(machine: Machine, **changes: Any) -> Machine:
    return replace(machine, devices=tuple(replace(device, **changes) for device in machine.devices))
