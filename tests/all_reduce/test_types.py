"""How many ranks a server has, and where."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.all_reduce import types as facts


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
def test_ranks_are_the_parts_of_a_layer_times_those_of_the_stack(
    serve: dict[str, object], count: int
) -> None:
    assert facts.rank_count(serve) == count


def test_the_machines_are_those_vllms_flags_name() -> None:
    assert facts.nodes({}) == facts.Nodes()
    serve = {"nnodes": 2, "node_rank": 1, "master_addr": "10.0.0.1", "master_port": 4000}
    assert facts.nodes(serve) == facts.Nodes(2, 1, "10.0.0.1", 4000)


def test_gpus_talk_by_nccl_and_processors_by_gloo() -> None:
    assert [facts.backend(device) for device in ("cpu", "cuda", "rocm", None)] == [
        "gloo", "nccl", "nccl", "nccl",
    ]  # fmt: skip


def test_limits_only_become_shorter() -> None:
    plan = facts.load()
    assert plan.within(5.0, 1e9).limit_s == 5.0
    assert plan.within(5.0, 1e9).stall_s == plan.stall_s


def test_sizes_grow_and_are_whole_kib() -> None:
    sizes = facts.load().sizes_kib
    assert list(sizes) == sorted(set(sizes))
    assert [facts.in_words(size * facts.KIB) for size in sizes] == [
        "8 KiB", "1 MiB", "16 MiB", "64 MiB",
    ]  # fmt: skip
