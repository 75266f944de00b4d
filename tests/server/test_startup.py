"""Start-up facts are read from logs as vLLM writes them, on a CPU and on a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_vllm_gates.server.startup import read
from pytest_vllm_gates.server.startup_check import as_toml, changes

HEALTHY = Path(__file__).parent.parent / "signatures" / "healthy"
CPU_0_32 = """\
(APIServer pid=1) INFO 11-21 07:02:56 [model.py:733] Resolved architecture: DeepseekV3ForCausalLM
(APIServer pid=1) INFO 11-21 07:02:56 [model.py:2152] Using max model len 4096
(EngineCore pid=2) INFO 11-21 07:03:01 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with \
config: model='m', speculative_config=None, dtype=torch.bfloat16, max_seq_len=4096, \
tensor_parallel_size=1, pipeline_parallel_size=1, quantization=None, quantization_config=None, \
enforce_eager=True, kv_cache_dtype=auto, device_config=cpu, enable_prefix_caching=True, \
enable_chunked_prefill=True
[W1121 07:03:09.891221861 utils.cpp:68] Warning: NUMA binding: Using MEMBIND policy for memory
(Worker pid=3) INFO 11-21 07:03:09 [cpu.py:175] Using CPU_MLA backend.
(Worker pid=3) INFO 11-21 07:03:09 [selector.py:131] Using CPU_SDPA_MLA MLA prefill backend.
(Worker pid=3) INFO 11-21 07:03:09 [unquantized.py:364] Using CPU Unquantized MoE backend out of \
potential backends: ['CPU'].
(EngineCore pid=2) INFO 11-21 07:03:10 [utils.py:347] Using LBNHC KV cache layout.
(Worker pid=3) INFO 11-21 07:03:10 [cpu_worker.py:260] Explicitly set (1.0/23.54) GiB for KV cache
(EngineCore pid=2) INFO 11-21 07:03:10 [kv_cache_utils.py:2327] CPU KV cache size: 466,032 tokens, \
Maximum concurrency for 4,096 tokens per request: 113.78x
"""
GPU_OLDER = """\
INFO 06-02 10:00:00 [config.py:841] Resolved architecture: Qwen3ForCausalLM
INFO 06-02 10:00:00 [config.py:1472] Using max model len 40960
(VllmWorker rank=0 pid=7) INFO 06-02 10:00:09 [cuda.py:252] Using Flash Attention backend on V1
(VllmWorker rank=1 pid=8) INFO 06-02 10:00:09 [cuda.py:252] Using Flash Attention backend on V1
(VllmWorker rank=0 pid=7) INFO 06-02 10:00:20 [gpu_model_runner.py:1796] Model loading took \
15.2683 GiB and 6.43 seconds
INFO 06-02 10:00:40 [gpu_worker.py:227] Available KV cache memory: 53.24 GiB
INFO 06-02 10:00:40 [kv_cache_utils.py:716] GPU KV cache size: 387,680 tokens
INFO 06-02 10:00:40 [kv_cache_utils.py:720] Maximum concurrency for 40,960 tokens per request: 9.46x
"""


def test_a_start_on_the_cpu_is_read() -> None:
    startup = read(CPU_0_32)
    assert startup.facts == {
        "architecture": "DeepseekV3ForCausalLM",
        "device": "cpu",
        "dtype": "bfloat16",
        "max_model_len": "4096",
        "tensor_parallel_size": "1",
        "pipeline_parallel_size": "1",
        "quantization": "None",
        "kv_cache_dtype": "auto",
        "enforce_eager": "True",
        "enable_prefix_caching": "True",
        "enable_chunked_prefill": "True",
        "attention_backend": "CPU_MLA",
        "kernels": "CPU Unquantized MoE backend, CPU_SDPA_MLA MLA prefill backend",
        "kv_cache_layout": "LBNHC",
    }
    assert startup.figures == {
        "kv_tokens": 466_032, "kv_concurrency": 113.78, "kv_concurrency_tokens": 4096, "kv_gib": 1,
    }  # fmt: skip
    assert startup.kv_bytes == 2**30


def test_a_start_on_an_h100_is_read() -> None:
    log = HEALTHY / "gpu-h100-qwen3.5-0.32.log"
    startup = read(log.read_text())
    assert {**startup.facts, "cuda_graphs": ""} == {
        "architecture": "Qwen3_5ForCausalLM",
        "device": "cuda",
        "dtype": "bfloat16",
        "max_model_len": "4096",
        "tensor_parallel_size": "1",
        "pipeline_parallel_size": "1",
        "quantization": "None",
        "kv_cache_dtype": "auto",
        "enforce_eager": "False",
        "cuda_graphs": "",
        "enable_prefix_caching": "True",
        "enable_chunked_prefill": "True",
        "attention_backend": "FLASH_ATTN",
        "kernels": "Triton/FLA GDN prefill kernel",
        "kv_cache_layout": "LBNHC",
    }
    assert startup.facts["cuda_graphs"] == "FULL_AND_PIECEWISE"
    assert startup.figures == {
        "kv_tokens": 123_141_090, "kv_concurrency": 30_063.74, "kv_concurrency_tokens": 4096,
        "kv_gib": 72.25, "weights_gib": 0,
    }  # fmt: skip


def test_an_eager_start_with_experts_on_an_h100_is_read() -> None:
    startup = read((HEALTHY / "gpu-h100-deepseek-0.32-eager.log").read_text())
    assert startup.facts["attention_backend"] == "FLASH_ATTN_MLA"
    assert (
        startup.facts["kernels"] == "FLASH_ATTN MLA prefill backend, TRITON Unquantized MoE backend"
    )
    assert startup.facts["enforce_eager"] == "True"
    assert startup.figures["kv_tokens"] == 33_791_392


def test_an_older_start_on_two_gpus_is_read_once() -> None:
    startup = read(GPU_OLDER)
    assert startup.facts["attention_backend"] == "Flash Attention"
    assert startup.figures["weights_gib"] == 15.2683
    assert startup.figures["kv_gib"] == 53.24
    assert startup.figures["kv_tokens"] == 387_680


def test_shorter_requests_have_more_room() -> None:
    assert read(GPU_OLDER).concurrency_at(20_480) == pytest.approx(18.92)


def test_unreported_values_are_unknown() -> None:
    startup = read("hello\n")
    assert (startup.facts, startup.figures) == ({}, {})
    assert startup.concurrency_at(100) is None
    assert startup.kv_bytes is None


def test_phases_of_a_start_are_read_in_seconds() -> None:
    startup = read((HEALTHY / "gpu-0.32-qwen3.5.log").read_text())
    assert startup.phases_s == {
        "weights": 12.61, "engine": 43.21, "compiling": 14.02, "graphs": 5.0,
    }  # fmt: skip
    assert read(GPU_OLDER).phases_s == {"weights": 6.43}
    assert read(CPU_0_32).phases_s == {}


def test_phases_are_not_part_of_a_recorded_start() -> None:
    """Another boot takes another time, which is not a change of the server."""
    startup = read((HEALTHY / "gpu-0.32-qwen3.5.log").read_text())
    slower = replace(startup, phases_s={"weights": 99.0})
    assert "12.61" not in as_toml("t", startup)
    assert list(changes(startup, slower)) == []
    assert startup.as_evidence() == slower.as_evidence()
