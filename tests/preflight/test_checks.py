"""Preflight as a whole: versions, flags and limits, and facts that are unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from situations import HOPPER, LANE, check, situation

from pytest_vllm_gates.catalog.expects import Expects
from pytest_vllm_gates.checkpoints.files import Model
from pytest_vllm_gates.environment.types import Bundle, UnmetRequirement
from pytest_vllm_gates.machine.types import NvidiaDriver, ProcessLimits
from pytest_vllm_gates.preflight import checks as preflight_checks
from pytest_vllm_gates.preflight.types import Check, CheckState, Node


def test_a_sound_bundle_passes_every_check() -> None:
    checks = preflight_checks.run(
        situation(serve={"tensor_parallel_size": 4, "max_model_len": 32768})
    )
    assert [each.name for each in checks] == list(preflight_checks.CHECKS)
    assert [each.name for each in checks if each.state is CheckState.UNKNOWN] == []
    assert preflight_checks.failed(checks) == ()


def test_failed_checks_are_explained_with_cause_and_fix() -> None:
    checks = preflight_checks.run(situation(serve={"tensor_parallel_size": 5}))
    explanation = preflight_checks.explain(checks)
    assert explanation.splitlines()[:3] == [
        "attention_heads: Total number of attention heads (24) must be divisible by tensor "
        "parallel size (5)",
        "cause: a head cannot be split",
        "fix: tensor_parallel_size = 4 in [serve]",
    ]
    assert "kv_heads: 5 is not divisible by 4" in explanation


def test_versions_that_do_not_fit_each_other() -> None:
    unmet = (UnmetRequirement("vllm 0.32.0", "transformers<5.20.0,>=5.16.1", "4.57.1"),)
    red = check("versions", bundle=replace(LANE, unmet=unmet))
    assert red.what == "vllm 0.32.0 requires transformers<5.20.0,>=5.16.1, but 4.57.1 is installed"
    assert "pip install 'transformers<5.20.0,>=5.16.1'" in red.fix
    assert check("versions").what == (
        "vllm 0.32.0 with torch 2.13.0, transformers 5.19.0, tokenizers 0.23.3"
    )
    assert check("versions", bundle=Bundle()).state is CheckState.UNKNOWN
    locked = check("versions", bundle=replace(LANE, locations={}))
    assert locked.what == "not installed yet: the lane's lock pins vllm 0.32.0"


def test_nodes_must_be_the_same() -> None:
    node1 = Node("node1", {"driver": {"version": "580.95.05"}}, {"vllm": "0.32.0"})
    node2 = Node("node2", {"driver": {"version": "570.26"}}, {"vllm": "0.31.0"})
    red = check("nodes", nodes=(node1, node2))
    assert red.what == (
        "the nodes differ: NVIDIA driver: 580.95.05 on node1, 570.26 on node2; "
        "vllm: 0.32.0 on node1, 0.31.0 on node2"
    )
    assert check("nodes", nodes=(node1, replace(node1, name="node2"))).state is CheckState.OK
    assert check("nodes", nodes=(Node("a", {}, {}), Node("b", {}, {}))).state is CheckState.UNKNOWN
    assert check("nodes").state is CheckState.NOT_APPLICABLE
    assert "vllm: 0.31.0 on node2, 0.32.0 on this machine" in check("nodes", nodes=(node2,)).what


def test_shared_memory() -> None:
    small = replace(HOPPER, limits=ProcessLimits((1024, 1048576), 64 * 2**20, 60 * 2**20))
    serve = {"tensor_parallel_size": 2}
    red = check("shared_memory", machine=small, serve=serve)
    assert red.what == (
        "Insufficient space in /dev/shm for shared-memory allocation: 160 MiB required, 60 MiB free"
    )
    assert "docker run --shm-size" in red.fix
    assert check("shared_memory", serve=serve).state is CheckState.OK
    assert check("shared_memory", machine=small).state is CheckState.NOT_APPLICABLE
    assert check("shared_memory", serve=serve, own_limits=False).state is CheckState.UNKNOWN
    untold = replace(HOPPER, limits=ProcessLimits())
    assert check("shared_memory", machine=untold, serve=serve).state is CheckState.UNKNOWN


@pytest.mark.parametrize(
    ("limits", "serve", "state", "message"),
    [
        ((1024, 1048576), {}, CheckState.OK, "65535 may be open, 512 are needed"),
        ((1024, 4096), {}, CheckState.OK, "1024 may be open, 512 are needed"),
        ((256, 4096), {}, CheckState.FAILS, "256 files may be open (soft 256, hard 4096), but 512 "
         "are needed for the most requests that may run at once"),
        ((1024, 4096), {"max_num_seqs": 1024}, CheckState.FAILS, "1024 files may be open (soft "
         "1024, hard 4096), but 1280 are needed for the most requests that may run at once"),
        ((-1, -1), {}, CheckState.OK, "65535 may be open, 512 are needed"),
        (None, {}, CheckState.UNKNOWN, "the limit of open files cannot be read"),
    ],
)  # fmt: skip
def test_open_files(
    limits: tuple[int, int] | None, serve: dict[str, Any], state: CheckState, message: str
) -> None:
    result = check("open_files", machine=replace(HOPPER, limits=ProcessLimits(limits)), serve=serve)
    assert (result.state, result.what) == (state, message)


@pytest.mark.parametrize(
    ("serve", "message"),
    [
        ({"tensor_parallel_size": 0}, "tensor_parallel_size = 0 is not a positive integer"),
        ({"tensor_parallel_size": "many"}, "tensor_parallel_size = 'many' is not"),
        ({"tensor_parallel_size": True}, "tensor_parallel_size = True is not a positive integer"),
        ({"gpu_memory_utilization": 92}, "gpu_memory_utilization = 92 is not a share above 0"),
        ({"gpu_memory_utilization": "x"}, "gpu_memory_utilization = 'x' is not a share above 0"),
        ({"max_model_len": -5}, "max_model_len = -5 is not a number of tokens (32768, 32k"),
        ({"max_model_len": "long"}, "max_model_len = 'long' is not a number of tokens"),
        ({"max_num_batched_tokens": 64, "max_num_seqs": 128},
         "max_num_batched_tokens (64) must be greater than or equal to max_num_seqs (128)"),
    ],
)  # fmt: skip
def test_invalid_flags_fail_only_the_flags_check(serve: dict[str, Any], message: str) -> None:
    red = check("flags", serve=serve)
    assert red.state is CheckState.FAILS
    assert red.what.startswith(message)
    checks = preflight_checks.run(situation(serve=serve))
    assert {each.name for each in preflight_checks.failed(checks)} == {"flags"}
    assert check("flags", serve={"max_model_len": "32k", "tensor_parallel_size": "2"}).state is (
        CheckState.OK
    )


def test_server_elsewhere_is_not_checked_on_this_machine() -> None:
    checks = preflight_checks.run(
        situation(machine=None, expects=Expects(gpu="H100"), bundle=Bundle())
    )
    assert preflight_checks.failed(checks) == ()
    unknown = {each.name for each in checks if each.state is CheckState.UNKNOWN}
    assert {"gpu", "driver", "lane_expects", "free_memory", "open_files"} <= unknown


def test_a_renderer_alone_needs_no_accelerator() -> None:
    none = replace(HOPPER, gpus=(), devices=(), driver=NvidiaDriver(problem="NVML: none"))
    checks = preflight_checks.run(situation(machine=none, renderer=True))
    assert preflight_checks.failed(checks) == ()


@pytest.mark.parametrize(
    "config",
    [
        {"text_config": None, "architectures": [None], "model_type": 3},
        {"text_config": [], "num_attention_heads": "many", "quantization_config": "fp8"},
        {"num_attention_heads": 0, "num_key_value_heads": 0, "max_position_embeddings": -1},
        {"rope_scaling": {"factor": None}, "max_position_embeddings": 10**30},
        {"quantization_config": {"quant_method": None, "weight_block_size": [0, "x"]}},
        {"quantization_config": {"quant_method": ["fp8"], "modules_to_not_convert": 7}},
        {"num_attention_heads": 4, "num_key_value_heads": 0, "intermediate_size": 0},
    ],
)
def test_nonsense_config_raises_nothing(config: dict[str, Any]) -> None:
    checks = preflight_checks.run(
        situation(model=Model("m", config), serve={"tensor_parallel_size": 4, "max_model_len": 8})
    )
    assert len(checks) == len(preflight_checks.CHECKS)
    assert all(each.what for each in checks)


def test_only_free_memory_is_retried() -> None:
    def only(*failing: str) -> bool:
        names = ("ports", "free_memory", "driver")
        return preflight_checks.only_memory_fails(
            Check(name, CheckState.FAILS if name in failing else CheckState.UNKNOWN, "")
            for name in names
        )

    assert only("free_memory")
    assert not only("free_memory", "driver") and not only("driver") and not only()
