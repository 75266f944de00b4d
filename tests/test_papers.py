"""The papers of an open project: each is read as the service reads it, and names what exists."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SCHEMAS = {
    ".github/workflows/ci.yml": "vendor.github-workflows",
    ".github/workflows/gates.yml": "vendor.github-workflows",
    ".github/workflows/release.yml": "vendor.github-workflows",
    ".github/dependabot.yml": "vendor.dependabot",
    ".readthedocs.yaml": "vendor.readthedocs",
}
SECTIONS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
REPOSITORY = "https://github.com/OWNER/pytest-vllm-gates"


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("path", "schema"), SCHEMAS.items(), ids=SCHEMAS)
def test_paper_is_valid_by_the_services_schema(path: str, schema: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, path]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def sessions() -> set[str]:
    text = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    return set(re.findall(r"^@nox\.session\ndef (\w+)\(", text, re.MULTILINE))


def test_every_session_that_a_paper_runs_exists() -> None:
    papers = [*GITHUB.rglob("*.yml"), *GITHUB.glob("*.md"), ROOT / "CONTRIBUTING.md"]
    text = "\n".join(paper.read_text(encoding="utf-8") for paper in papers)
    run = set(re.findall(r"nox -s ([a-z_]+)", text))
    matrix = loaded(GITHUB / "workflows" / "ci.yml")["jobs"]["session"]["strategy"]["matrix"]
    assert {"package", "site", "lint"} <= run
    assert {*run, *matrix["session"]} <= sessions()


def test_pull_requests_run_every_stage_of_ci() -> None:
    """The stages of .ci/run are sessions of nox, with the same selection of tests."""
    matrix = loaded(GITHUB / "workflows" / "ci.yml")["jobs"]["session"]["strategy"]["matrix"]
    assert {"lint", "tests", "real", "alone"} <= set(matrix["session"])
    stages = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    noxfile = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    for selection in re.findall(r"-m '([^']*)'", stages):
        assert selection in noxfile


def test_development_container_installs_what_contributing_does() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert ".venv/bin/pip install -q -e '.[dev]'" in container["postCreateCommand"]


def test_hooks_of_pre_commit_run_programs_of_the_development_environment() -> None:
    installed = {re.split(r"[\[>=<]", one)[0] for one in
                 PROJECT["project"]["optional-dependencies"]["dev"]}  # fmt: skip
    hooks = loaded(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    programs = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in hooks}
    assert programs == {"ruff", "mypy", "codespell", "pytest"}
    assert programs - {"pytest"} <= installed


def test_forms_of_issues_ask_for_versions() -> None:
    forms = [form for form in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if form.stem != "config"]
    assert len(forms) == 3
    for form in map(loaded, forms):
        assert {"name", "description", "body"} <= form.keys()
        ids = [field["id"] for field in form["body"]]
        assert len(ids) == len(set(ids))
        assert {"versions", "serving"} & set(ids)


def test_changelog_has_this_version_and_the_sections_of_keep_a_changelog() -> None:
    """https://keepachangelog.com/en/1.1.0/."""
    import pytest_vllm_gates  # noqa: PLC0415

    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?$", text, re.MULTILINE)
    assert pytest_vllm_gates.__version__ in dict(versions)
    assert all(date or version == "Unreleased" for version, date in versions)
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= SECTIONS


def test_release_publishes_by_trust_and_only_tags() -> None:
    jobs = loaded(GITHUB / "workflows" / "release.yml")["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["if"] == "github.ref_type == 'tag'"
    assert set(jobs["publish"]["needs"]) == {"build", "attest"}
    assert "password" not in (GITHUB / "workflows" / "release.yml").read_text()


@pytest.fixture
def page() -> Any:
    return runpy.run_path(str(ROOT / "docs" / "package_page.py"))["with_addresses"]


def test_package_page_has_absolute_addresses(page: Any) -> None:
    text = "![p](docs/p.svg) [a](docs/a.md#x) [b](#here) [c](https://x.y) [![q](q.png)](z.md)"
    assert page(text, REPOSITORY) == (
        f"![p]({REPOSITORY}/raw/HEAD/docs/p.svg) [a]({REPOSITORY}/blob/HEAD/docs/a.md#x) "
        "[b](#here) [c](https://x.y) "
        f"[![q]({REPOSITORY}/raw/HEAD/q.png)]({REPOSITORY}/blob/HEAD/z.md)"
    )


def test_no_relative_link_of_the_readme_is_left_on_the_package_page(page: Any) -> None:
    text = page((ROOT / "README.md").read_text(encoding="utf-8"), REPOSITORY)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) > 10
    assert [link for link in links if not re.match(r"https?:|#", link)] == []
