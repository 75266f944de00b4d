"""Each text of `fallbacks.toml` is in the shipped lanes' vLLM, if its versions include that one."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.server.fallbacks import LogSource, load

pytestmark = pytest.mark.real

SOURCES = [
    pytest.param(source, id=f"{topic.name}-{number}")
    for topic in load()
    for number, source in enumerate((*topic.words, *topic.silent), 1)
    if not source.composed
]


@cache
def installed(lane: str) -> tuple[Path, str]:
    """Return the folder of a lane's vLLM, and its version."""
    shipped = lanes.load(lane, Path("/nowhere"))
    prepared = environment.prepare(shipped, cache=files.default_cache(), progress=print)
    assert prepared.python is not None
    packages = next(prepared.python.parent.parent.glob("lib/python3*/site-packages"))
    assert prepared.vllm is not None
    return packages / "vllm", prepared.vllm


@pytest.mark.parametrize("lane", ["cpu", "cpu-previous"])
@pytest.mark.parametrize("source", SOURCES)
def test_text_is_in_the_file_of_its_versions(source: LogSource, lane: str) -> None:
    vllm, version = installed(lane)
    if not SpecifierSet(source.versions).contains(version):
        pytest.skip(f"vLLM {version} is not in {source.versions}")
    assert source.text in (vllm / source.file).read_text(encoding="utf-8"), (
        f"vLLM {version}: {source.file} no longer has {source.text!r}; find its new text and "
        "add that to the topic's words"
    )
