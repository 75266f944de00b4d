"""The lanes of docs/other-servers.md: each is one, and what its command is given makes a server.

No docker, podman, srun or openllm runs here. A stand-in for each notes what it was given, and then
becomes a server that answers, with the key only where the real program would hand it on.
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
    """Put a stand-in for the lane's program on PATH; return where it notes what it is given."""
    lane = lanes.load(name, project.path)
    noted = project.path / "noted.json"
    more = {"FAKE": "no-health", "FAKE_NAME": lane.served_model_name or ""}
    text = STAND_IN.format(
        python=sys.executable,
        noted=str(noted),
        container=name in ("docker", "podman"),
        more=more if lane.served_model_name else {},
        server=stub.__file__,
    )
    program = project.write(f"bin/{PROGRAMS.get(name, name)}", text)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return noted


@pytest.mark.parametrize("name", NAMES)
def test_a_lane_of_the_page_is_one_and_the_page_names_it(name: str, documented: Project) -> None:
    assert lanes.load(name, documented.path).file.parent == documented.path / "lanes"
    assert f"(lanes/{name}.toml)" in PAGE.read_text(encoding="utf-8")


def test_every_lane_with_a_command_is_tried_here(documented: Project) -> None:
    found = [name for name in NAMES if lanes.load(name, documented.path).form == "command"]
    assert found == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_its_command_starts_what_the_boot_gate_passes(
    name: str, documented: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = stand_in(documented, monkeypatch, name)
    result = documented.pytest(
        "--model", "qwen3.5", "--checkpoint", "miniature", "--lane", name, "-m", "boot",
        "--gates-report", "out",
    )  # fmt: skip
    assert result.ret == 0, result.stdout.str()
    assert set(documented.outcomes().values()) == {"PASS"}
    given = json.loads(noted.read_text())
    text = " ".join(given)
    assert not re.search(r"\{\w+\}", text), "a placeholder was left"
    lane = lanes.load(name, documented.path)
    if lane.served_model_name:
        assert "--host" not in given
        assert "--model" not in given
        assert len(given) == len(lane.command or ()) - 1
        return
    assert "--host 127.0.0.1" in text
    assert "--served-model-name qwen3.5 qwen3.5-" in text
    model = given[given.index("--model") + 1]
    if name != "slurm":
        assert f"--volume={model}:{model}:ro" in given
    assert "VLLM_API_KEY=" not in text, "the key stands among the arguments"


def test_ranks_that_a_command_starts_are_not_tried_from_here(
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


def test_a_server_of_another_name_is_not_taken_for_it(
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


def test_the_pages_own_blocks_are_whole() -> None:
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
    found = environment.prepare(lane, cache=files.default_cache(), progress=print)
    (packages,) = found.folders
    configs = [path.read_text() for path in (packages / "vllm" / "config").glob("*.py")]
    for flag in lanes.load(name, documented.path).serve:
        assert any(re.search(rf"^    {flag}\b", text, re.MULTILINE) for text in configs), flag
