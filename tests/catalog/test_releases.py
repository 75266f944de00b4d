"""The table of vLLM releases: entry points, flags, other names, what a lane of one needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_vllm_gates.catalog import lane as lanes, releases
from pytest_vllm_gates.errors import UserError

LAUNCHER = "vllm.entrypoints.launchers.api_server.entry"
OLD = "vllm.entrypoints.openai.api_server"
SHIPPED = {"cpu": "0.32.0", "cpu-previous": "0.30.0", "cuda": "0.32.0"}


@pytest.mark.parametrize(
    ("version", "module", "renderer"),
    [("0.27.1", OLD, False), ("0.28.0", OLD, False), ("0.28.1", OLD, False),
     ("0.29.0", LAUNCHER, True), ("0.29.0rc1", LAUNCHER, True), ("0.33.0", LAUNCHER, True)],
)  # fmt: skip
def test_start_command_follows_the_release(version: str, module: str, renderer: bool) -> None:
    start = releases.start(version)
    assert start.server == ("-m", module)
    assert (start.renderer is not None) is renderer


@pytest.mark.parametrize(("lane", "version"), SHIPPED.items())
def test_shipped_lanes_start_and_set_flags_as_the_table_has_them(lane: str, version: str) -> None:
    shipped = lanes.load(lane, Path("/nowhere"))
    start = releases.start(version)
    assert (shipped.start.server, shipped.start.renderer) == (start.server, start.renderer)
    assert releases.unknown(releases.flags(version), shipped.serve) == []


@pytest.mark.parametrize(
    ("flag", "version", "known"),
    [("enable_scale_out", "0.29.0", False), ("enable_scale_out", "0.30.0", True),
     ("enable-scale-out", "0.32.0", True), ("no_enable_scale_out", "0.32.0", True),
     ("calculate_kv_scales", "0.27.1", True), ("calculate_kv_scales", "0.28.0", False),
     ("tensor_parallel_size", "0.22.1", True), ("enable_prefix", "0.32.0", True),
     ("compilation_config.mode", "0.32.0", True), ("O", "0.32.0", True),
     ("gpu_memory", "0.32.0", True), ("swap_space_of_mine", "0.32.0", False)],
)  # fmt: skip
def test_flag_is_known_in_its_releases(flag: str, version: str, known: bool) -> None:
    assert (releases.unknown(releases.flags(version), [flag]) == []) is known


@pytest.mark.parametrize("version", ["0.21.0", "0.33.0", "0.23.1rc1.dev1403+g4080263bb.cu129"])
def test_no_flag_is_unknown_to_a_release_that_was_not_read(version: str) -> None:
    assert releases.unknown(releases.flags(version), ["nonsense"]) == []


@pytest.mark.parametrize(
    ("name", "version", "other"),
    [("device_memory_utilization", "0.30.0", "gpu_memory_utilization"),
     ("device_memory_utilization", "0.21.0", "gpu_memory_utilization"),
     ("enable_mamba_shared_prefix_checkpoint", "0.30.0", "enable_mamba_fine_grained_prefix_cache"),
     ("enable_mamba_fine_grained_prefix_cache", "0.31.0", "enable_mamba_shared_prefix_checkpoint"),
     ("enable_scale_out", "0.29.0", None)],
)  # fmt: skip
def test_other_name_of_a_flag_is_that_of_the_release(
    name: str, version: str, other: str | None
) -> None:
    assert releases.name_in(name, version) == other


def test_flags_are_translated_for_an_older_release() -> None:
    serve = {"device_memory_utilization": 0.8, "enable_scale_out": True, "enforce_eager": True}
    translated, remarks = releases.translated(serve, "0.29.0")
    assert translated == {"gpu_memory_utilization": 0.8, "enforce_eager": True}
    assert remarks == [
        "device_memory_utilization is called gpu_memory_utilization in 0.29.0",
        "enable_scale_out left out: vLLM has it since 0.30.0",
    ]


def test_invalid_release_is_reported_with_the_next_command() -> None:
    with pytest.raises(UserError, match=r"'newest': expected a release such as 0\.32\.0\nlist"):
        releases.start("newest")
