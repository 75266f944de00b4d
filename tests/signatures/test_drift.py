"""The texts in the signatures still exist in the installed packages.

When a lane moves to a new vLLM and a text changed there, this test names the signature that needs
the new one. The old pattern stays, because logs of older versions are read too.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from pytest_vllm_gates import files as files_module
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.diagnosis import signature
from pytest_vllm_gates.environment import environment

SOURCES = [
    pytest.param(entry.id, source, id=f"{entry.id}-{number}")
    for each in signature.load_all()
    for entry in each.signatures
    for number, source in enumerate(entry.sources, 1)
]


# Flags of other programs: docker, uv, pip, hf, ray, nvidia-smi.
OTHERS = {
    "--address", "--cap-add", "--device", "--force-download", "--format", "--gpus", "--head",
    "--ipc", "--managed-python", "--memory", "--network", "--no-build-isolation",
    "--node-ip-address", "--num-gpus", "--pid", "--pids-limit", "--privileged", "--python",
    "--query-gpu", "--reinstall", "--runtime", "--shm-size", "--torch-backend", "--ulimit",
    "--upgrade", "--version",
}  # fmt: skip
NAMED = re.compile(r"--[a-z][a-z0-9-]+|\bVLLM_[A-Z0-9_]+")
ADVICE = sorted(
    {
        (entry.id, name)
        for each in signature.load_all()
        for entry in each.signatures
        for said in (entry.text.cause, entry.text.cause_plain, *entry.text.fixes)
        for name in NAMED.findall(said)
        if name not in OTHERS
    }
)


@cache
def sources(packages: Path) -> str:
    """Return the text of vLLM's Python files in which flags and variables are declared."""
    files = (*(packages / "vllm").glob("*.py"), *(packages / "vllm").glob("e*/**/*.py"))
    configs = (packages / "vllm" / "config").glob("*.py")
    return "\n".join(path.read_text() for path in (*files, *configs))


@pytest.fixture(scope="module", params=["cpu", "cpu-previous"])
def packages(request: pytest.FixtureRequest) -> Path:
    """Return the folder of a lane's packages."""
    lane = lanes.load(request.param, Path("/nowhere"))
    prepared = environment.prepare(lane, cache=files_module.default_cache(), progress=print)
    assert prepared.python is not None
    return next(prepared.python.parent.parent.glob("lib/python3*/site-packages"))


@pytest.mark.real
@pytest.mark.parametrize(("name", "source"), SOURCES)
def test_text_of_a_signature_is_still_in_the_sources(
    name: str, source: signature.Source, packages: Path
) -> None:
    file = packages / source.package / source.file
    assert file.is_file(), f"{name}: {source.package} has no {source.file} any more"
    assert source.text in file.read_text(), (
        f"{name}: {source.package}/{source.file} no longer contains {source.text!r}; find the new "
        f"text, and add it to the signature's patterns"
    )


@pytest.mark.real
@pytest.mark.parametrize(("name", "advice"), ADVICE, ids=lambda text: text)
def test_names_in_a_fix_still_exist(name: str, advice: str, packages: Path) -> None:
    field = advice.removeprefix("--").removeprefix("no-").replace("-", "_")
    assert re.search(rf"\b{field}\b", sources(packages)) or advice in sources(packages), (
        f"{name} advises {advice}, which this vLLM does not have"
    )
