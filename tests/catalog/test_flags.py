"""Flags are data, and the command line is made from them."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.catalog.flags import command_line, devices, merged


@pytest.mark.parametrize(
    ("name", "value", "arguments"),
    [
        ("max_model_len", 4096, ["--max-model-len", "4096"]),
        ("max-model-len", 4096, ["--max-model-len", "4096"]),
        ("gpu_memory_utilization", 0.9, ["--gpu-memory-utilization", "0.9"]),
        ("enforce_eager", True, ["--enforce-eager"]),
        ("enforce_eager", False, ["--no-enforce-eager"]),
        ("dtype", "", ["--dtype", ""]),
        ("served_model_name", ["a", "b"], ["--served-model-name", "a", "b"]),
        ("served_model_name", ("a",), ["--served-model-name", "a"]),
        ("api_server_count", 0, ["--api-server-count", "0"]),
        (
            "hf_overrides",
            {"rope": {"factor": 2.0}, "x": "é"},
            ["--hf-overrides", '{"rope": {"factor": 2.0}, "x": "é"}'],
        ),
        ("chat_template", "a b; rm -rf", ["--chat-template", "a b; rm -rf"]),
    ],
)
def test_flags_are_spelled_for_the_command_line(
    name: str, value: object, arguments: list[str]
) -> None:
    assert command_line({name: value}) == arguments


def test_later_layers_win_with_dashes_or_underscores() -> None:
    flags = merged({"max_model_len": 1, "dtype": "auto"}, {}, {"max-model-len": 2})
    assert flags == {"max_model_len": 2, "dtype": "auto"}


def test_no_flags_give_no_arguments() -> None:
    assert command_line(merged()) == []


@pytest.mark.parametrize(
    ("serve", "count"),
    [
        ({}, 1),
        ({"tensor_parallel_size": 4, "pipeline_parallel_size": 2}, 8),
        ({"tensor_parallel_size": "2", "data_parallel_size": 3}, 6),
        ({"tensor_parallel_size": "many"}, 1),
    ],
)
def test_a_server_needs_a_device_for_each_rank(serve: dict[str, object], count: int) -> None:
    assert devices(serve) == count
