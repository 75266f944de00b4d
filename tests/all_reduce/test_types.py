"""The ranks and machines of a server, and the plan of an all-reduce."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.all_reduce.types import (
    KIB,
    Nodes,
    backend,
    in_words,
    load,
    nodes,
    rank_count,
)


@pytest.mark.parametrize(
    ("serve", "count"),
    [
        ({}, 1),
        ({"tensor_parallel_size": 2}, 2),
        ({"tensor_parallel_size": 4, "pipeline_parallel_size": 2}, 8),
        ({"pipeline_parallel_size": 3}, 3),
        ({"tensor_parallel_size": "many"}, 1),
        ({"tensor_parallel_size": 0}, 1),
    ],
)
def test_rank_count_is_tensor_times_pipeline_parallel(serve: dict[str, object], count: int) -> None:
    assert rank_count(serve) == count


def test_nodes_are_read_from_vllm_flags() -> None:
    assert nodes({}) == Nodes()
    serve = {"nnodes": 2, "node_rank": 1, "master_addr": "10.0.0.1", "master_port": 4000}
    assert nodes(serve) == Nodes(2, 1, "10.0.0.1", 4000)


def test_gpus_use_nccl_and_processors_gloo() -> None:
    assert [backend(device) for device in ("cpu", "cuda", "rocm", None)] == [
        "gloo", "nccl", "nccl", "nccl",
    ]  # fmt: skip


def test_limits_only_become_shorter() -> None:
    plan = load()
    assert plan.within(5.0, 1e9).limit_s == 5.0
    assert plan.within(5.0, 1e9).stall_s == plan.stall_s


def test_sizes_grow_and_are_whole_kib() -> None:
    sizes = load().sizes_kib
    assert list(sizes) == sorted(set(sizes))
    assert [in_words(size * KIB) for size in sizes] == [
        "8 KiB", "1 MiB", "16 MiB", "64 MiB",
    ]  # fmt: skip
