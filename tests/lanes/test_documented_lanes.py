"""The lanes of docs/other-servers.md load, and their commands start a server.

No docker, podman, srun or openllm runs here. A stand-in for each records its arguments and then
becomes a server that answers; it has the key only if the real program would pass it on.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from servers import stub

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.environment import environment

if TYPE_CHECKING:
    from conftest import Project

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "other-servers.md"
NAMES = sorted(path.stem for path in (DOCS / "lanes").glob("*.toml"))
COMMANDS = ("docker", "openllm", "podman", "slurm")
PROGRAMS = {"slurm": "srun"}
CACHE = files.default_cache()
"""That of this machine, where the lane's environment is made once for all tests."""
STAND_IN = """\
#!{python} -IS
import json, os, sys
given = sys.argv[1:]
with open({noted!r}, "w") as file:
    json.dump(given, file)
if {container} and "--env=VLLM_API_KEY" not in given:
    del os.environ["VLLM_API_KEY"]
port = given[given.index("--port") + 1]
os.environ.update({more!r})
os.execv({python!r}, [{python!r}, "-I", "-S", {server!r}, port, *given])
"""


@pytest.fixture
def documented(project: Project) -> Project:
    """A project with the page's lanes."""
    for name in NAMES:
        shutil.copy(DOCS / "lanes" / f"{name}.toml", project.path / "lanes")
    return project


def stand_in(project: Project, monkeypatch: pytest.MonkeyPatch, name: str) -> Path:
    """Put a stand-in for the lane's program on PATH; return the file with its arguments."""
    lane = lanes.load(name, project.path)
    noted = project.path / "noted.json"
    fake_environ = {"FAKE": "no-health", "FAKE_NAME": lane.served_model_name or ""}
    text = STAND_IN.format(
        python=sys.executable,
        noted=str(noted),
        container=name in ("docker", "podman"),
        more=fake_environ if lane.served_model_name else {},
        server=stub.__file__,
    )
    program = project.write(f"bin/{PROGRAMS.get(name, name)}", text)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return noted


@pytest.mark.parametrize("name", NAMES)
def test_documented_lanes_load_and_are_named_on_the_page(name: str, documented: Project) -> None:
    assert lanes.load(name, documented.path).file.parent == documented.path / "lanes"
    assert f"(lanes/{name}.toml)" in PAGE.read_text(encoding="utf-8")


def test_every_documented_command_lane_has_a_test(documented: Project) -> None:
    command_lanes = [name for name in NAMES if lanes.load(name, documented.path).form == "command"]
    assert command_lanes == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_documented_command_starts_a_server_that_boots(
    name: str, documented: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = stand_in(documented, monkeypatch, name)
    result = documented.pytest(
        "--model", "qwen3.5", "--checkpoint", "miniature", "--lane", name, "-m", "boot",
        "--gates-report", "out",
    )  # fmt: skip
    assert result.ret == 0, result.stdout.str()
    assert set(documented.outcomes().values()) == {"PASS"}
    arguments = json.loads(noted.read_text())
    text = " ".join(arguments)
    assert not re.search(r"\{\w+\}", text), "a placeholder was left"
    lane = lanes.load(name, documented.path)
    if lane.served_model_name:
        assert "--host" not in arguments
        assert "--model" not in arguments
        assert len(arguments) == len(lane.command or ()) - 1
        return
    assert "--host 127.0.0.1" in text
    assert "--served-model-name qwen3.5 qwen3.5-" in text
    model = arguments[arguments.index("--model") + 1]
    if name != "slurm":
        assert f"--volume={model}:{model}:ro" in arguments
    assert "VLLM_API_KEY=" not in text, "the key is among the arguments"


def test_ranks_of_a_command_lane_are_not_started_here(
    documented: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(documented, monkeypatch, "slurm")
    documented.pytest(
        "--model", "qwen3.5", "--checkpoint", "miniature", "--lane", "slurm", "-k", "boots",
        "--gates-report", "out",
    )  # fmt: skip
    (family,) = documented.verdict()["families"]
    tried = family["boot"]["evidence"]["all_reduce"]
    assert tried == {
        "state": "not run",
        "why": "the ranks run inside what the lane's command starts",
    }


def test_server_with_another_model_name_is_refused(
    documented: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(documented, monkeypatch, "openllm")
    file = documented.path / "lanes" / "openllm.toml"
    file.write_text(file.read_text().replace("meta-llama/", "other/"))
    result = documented.pytest(
        "--model", "qwen3.5", "--checkpoint", "miniature", "--lane", "openllm", "-m", "boot",
        "--boot-timeout", "3",
    )  # fmt: skip
    assert result.ret == 1
    result.stdout.re_match_lines([r".*the server was not ready after \d+ s \(--boot-timeout\)"])


def test_code_blocks_of_the_page_are_complete() -> None:
    yaml = pytest.importorskip("yaml")
    blocks = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (job,) = [yaml.safe_load(text) for kind, text in blocks if kind == "yaml"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert "--base-url http://vllm:8000/v1 --require-promotion" in container["args"][0]
    for text in (text for kind, text in blocks if kind == "toml"):
        assert tomllib.loads(text)["serve"]["nnodes"] == 2


@pytest.mark.real
@pytest.mark.parametrize("name", NAMES)
def test_vllm_has_the_flags_that_a_lane_sets(name: str, documented: Project) -> None:
    lane = lanes.load("cpu", documented.path)
    prepared = environment.prepare(lane, cache=CACHE, progress=print)
    (packages,) = prepared.folders
    configs = [path.read_text() for path in (packages / "vllm" / "config").glob("*.py")]
    for flag in lanes.load(name, documented.path).serve:
        assert any(re.search(rf"^    {flag}\b", text, re.MULTILINE) for text in configs), flag
