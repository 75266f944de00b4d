"""`vllm-gates preflight`, as it is typed."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from machines import RECORDED, put_in_place, recorded

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.cli.main import main

ROOT = Path(__file__).parents[2]
LANE = 'title = "a server"\ncommand = [{python!r}]\ncheckpoint = "miniature"\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "lanes").mkdir()
    lane(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lane(project: Path, more: str = "") -> None:
    (project / "lanes/own.toml").write_text(LANE.format(python=sys.executable) + more)


@pytest.mark.usefixtures("project")
def test_model_that_can_boot_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", "--model", "qwen3.5", "--lane", "own"]) == 0
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert first == "qwen3.5, checkpoint miniature, on lane own: a server"
    states = {line.split()[0]: line.split()[1] for line in lines}
    assert states["max_model_len"] == "ok"
    assert states["gpu"] == "unknown"
    assert " ok, " in last and " unknown" in last


def test_model_that_cannot_boot_has_cause_and_fix(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lane(project, "\n[serve]\nmax_model_len = 1000000\n")
    assert main(["preflight", "--model", "glm", "--lane", "own"]) == 1
    output = capsys.readouterr().out
    assert (
        "max_model_len        FAILS    User-specified max_model_len (1000000) is greater" in output
    )
    assert "fix:     max_model_len = 32768 in [serve]" in output
    assert ", 1 fails, " in output.splitlines()[-1]


def test_one_check_alone_as_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lane(project, "\n[serve]\nmax_model_len = 1000000\ntensor_parallel_size = 0\n")
    arguments = ["preflight", "--model", "glm", "--lane", "own", "--json", "--check"]
    assert main([*arguments, "max-model-len"]) == 1
    (check,) = json.loads(capsys.readouterr().out)
    assert (check["name"], check["state"]) == ("max_model_len", "fails")
    assert main([*arguments, "parsers"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "qwen3.5", "--check", "gpus"), "unknown check 'gpus'; did you mean 'gpu'?"),
        (("--model", "qwn3.5"), "unknown family 'qwn3.5'; did you mean 'qwen3.5'?"),
        (("--model", "glm", "--lane", "cdua"), "unknown lane 'cdua'; did you mean 'cuda'?"),
        (("--model", "glm", "--node", "no.json"), "no.json: cannot be read as JSON"),
    ],
)
@pytest.mark.usefixtures("project")
def test_invalid_arguments_are_refused(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["preflight", "--lane", "own", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_lane_that_is_not_made_is_judged_by_its_lock(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VLLM_GATES_CACHE", str(project / "cache"))
    put_in_place(project / "bin", monkeypatch, "h100x8", 8)
    weights = str(miniatures.path("qwen3.5"))
    assert main(["preflight", "--model", "qwen3.5", "--checkpoint", weights]) == 1
    output = capsys.readouterr().out
    assert "on lane cuda" in output
    assert "driver 550.90.07 is too old for the lane's CUDA 13.0" in output
    assert "versions             unknown  not installed yet: the lane's lock pins vllm" in output
    assert not (project / "cache").exists()


def test_nodes_are_compared(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, vllm in (("one", "0.32.0"), ("two", "0.31.0")):
        document = {
            "machine": {"driver": {"version": "580"}},
            "bundle": {"versions": {"vllm": vllm}},
        }
        (project / f"{name}.json").write_text(json.dumps(document))
    arguments = ["preflight", "--model", "glm", "--lane", "own", "--check", "nodes"]
    assert main([*arguments, "--node", "one.json", "--node", "two.json"]) == 1
    assert "the nodes differ: vllm: 0.32.0 on one, 0.31.0 on two" in capsys.readouterr().out
    assert main([*arguments, "--node", "one.json", "--node", "one.json"]) == 0
    (project / "bad.json").write_text("[]")
    assert main([*arguments, "--node", "bad.json"]) == 2
    assert "not an inventory" in capsys.readouterr().err


def test_another_machine_is_judged_by_its_file(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VLLM_GATES_CACHE", str(project / "cache"))
    weights = str(miniatures.path("qwen3.5"))
    arguments = ["preflight", "--model", "qwen3.5", "--checkpoint", weights, "--lane", "cuda"]
    document = RECORDED / "h100x8.xml"
    assert main([*arguments, "--machine", str(document)]) == 1
    output = capsys.readouterr().out
    assert "driver 550.90.07 is too old for the lane's CUDA 13.0" in output
    assert "shared_memory        n/a" in output
    inventory = project / "gb10.json"
    facts = json.dumps({"machine": dataclasses.asdict(recorded("gb10"))})
    inventory.write_text(facts)
    assert main([*arguments, "--machine", str(inventory), "--check", "gpu"]) == 0
    assert "1 of 1: NVIDIA GB10, sharing the machine's memory" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "machine.json: not an inventory"),
        ("{", "neither JSON nor nvidia-smi's XML"),
        ("<nvidia_smi_log>", "not what nvidia-smi -q -x prints"),
        ('{"machine": {"devices": 3}}', "not an inventory of this version"),
    ],
)
def test_file_that_describes_no_machine_is_refused(
    project: Path, content: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "machine.json").write_text(content)
    assert main(["preflight", "--model", "glm", "--machine", "machine.json"]) == 2
    error = capsys.readouterr().err
    assert message in error and "nvidia-smi -q -x > machine.xml" in error
    assert main(["preflight", "--model", "glm", "--machine", "absent.json"]) == 2


def test_folder_of_no_family_is_checked_with_the_lanes_flags(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lane(project, "\n[serve]\nmax_model_len = 9000\n")
    config = {"architectures": ["UnheardForCausalLM"], "model_type": "unheard",
              "max_position_embeddings": 8192}  # fmt: skip
    (project / "weights").mkdir()
    (project / "weights/config.json").write_text(json.dumps(config))
    arguments = ["preflight", "--model", "./weights", "--lane", "own", "--check"]
    assert main([*arguments, "max_model_len"]) == 1
    output = capsys.readouterr().out
    assert output.startswith("no family, checkpoint weights, on lane own: a server\n")
    assert "max_model_len (9000) is greater" in output
    assert main([*arguments, "flags"]) == 0


def test_files_of_lanes_are_checked_for_every_family(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["preflight", "lanes/own.toml"]) == 0
    printed = capsys.readouterr().out
    assert re.fullmatch(r"checked: \d+, each a family on a lane; 0 cannot boot\n", printed)
    lane(project, "\n[serve]\nmax_model_len = 1000000\n")
    assert main(["preflight", "lanes/own.toml"]) == 1
    output = capsys.readouterr().out
    assert re.search(r"^glm on lane own: max_model_len +FAILS ", output, re.MULTILINE)
    assert not re.search(r"free_memory|gpu ", output)


def test_files_of_families_are_checked_on_the_projects_lanes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "families").mkdir()
    shipped = (families.SHIPPED / "glm.toml").read_text()
    (project / "families" / "glm.toml").write_text(shipped)
    assert main(["preflight", "families/glm.toml"]) == 0
    assert capsys.readouterr().out == "checked: 1, each a family on a lane; 0 cannot boot\n"
    (project / "families" / "glm.toml").write_text(shipped + "\nwrong = 1\n")
    assert main(["preflight", "families/glm.toml"]) == 2
    assert "families/glm.toml" in capsys.readouterr().err


def test_a_project_below_the_repository_is_found(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project.parent)
    assert main(["preflight", f"{project.name}/lanes/own.toml"]) == 0
    assert "; 0 cannot boot" in capsys.readouterr().out


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "name either --model, or files"),
        (["lanes/own.toml", "--model", "glm"], "name either --model, or files"),
        (["lanes/own.toml", "--json"], "--json needs --model, and files were named"),
        (["pytest.ini"], "pytest.ini is neither a lane nor a family"),
    ],
)
def test_preflight_of_nothing_is_refused(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["preflight", *words]) == 2
    assert says in capsys.readouterr().err


def test_hook_of_pre_commit_takes_lanes_and_families_alone() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] == "vllm-gates preflight"
    for path in ("lanes/own.toml", "serving/families/a.toml"):
        assert re.search(hook["files"], path)
    for path in ("lanes/own.lock", "pyproject.toml", "lanes/overlay/a.toml"):
        assert not re.search(hook["files"], path)
