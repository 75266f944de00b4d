"""Every command of the README and of the docs is one that its program takes."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typed
from _pytest.config import _prepareconfig

from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.checkpoints import resolve as checkpoints_resolve
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from collections.abc import Iterator

NOWHERE = Path("/nowhere")
PAGES = [
    *(typed.ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((typed.ROOT / "docs").rglob("*.md")),
]
IDS = [str(page.relative_to(typed.ROOT)) for page in PAGES]
EACH = pytest.mark.parametrize("page", PAGES, ids=IDS)
THEIR_LANES = {"NAME", "canary", "docker", "here", "stable"}
RECORDED_LANES = {
    file.stem for file in (Path(__file__).parent / "recorded" / "field" / "lanes").glob("*.toml")
}
THEIR_FAMILIES = {"NAME", "acme", "all", "name"}
"""Lanes and families that pages speak of as the reader's own."""
REFUSED = (pytest.UsageError, SystemExit, SyntaxError, typed.NoCommand)
OUR_MARKS = {"alone", "browser", "real", "slow"}


def commands(page: Path) -> Iterator[list[str]]:
    for line in typed.lines(page.read_text(encoding="utf-8")):
        yield from typed.meant(line)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pytest.Config]:
    """Give a configuration of a pytest that was asked for nothing."""
    alone = ["--noconftest", "-c", os.devnull, "--rootdir", str(tmp_path_factory.mktemp("project"))]
    made = _prepareconfig(alone)
    yield made
    made._ensure_unconfigure()


@pytest.fixture(autouse=True)
def _what_commands_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATES_LOAD_SECRET", "x" * 32)
    monkeypatch.setenv("NAME", "a key")


@EACH
def test_every_command_is_taken_by_its_program(page: Path, config: pytest.Config) -> None:
    for line in typed.lines(page.read_text(encoding="utf-8")):
        try:
            typed.all_tried(line, config)
        except REFUSED as error:
            pytest.fail(f"{page.name}: {line}\n{error}")


@EACH
def test_every_gate_lane_and_family_of_a_command_exists(page: Path) -> None:
    marks = {*verdict_gates.gate_files(), *OUR_MARKS}
    known = {*lanes.files(NOWHERE), *THEIR_LANES, *RECORDED_LANES}
    for words in commands(page):
        if not typed.is_ours(words[0]):
            continue
        given = dict(itertools.pairwise(words))
        if Path(words[0]).name == "pytest":
            expression = given.get("-m", "").replace("(", " ").replace(")", " ")
            assert set(expression.split()) - {"not", "or", "and"} <= marks, words
        for option in ("--lane", "--against"):
            named = given.get(option, "cpu")
            assert named in known or checkpoints_resolve.is_source(named, known), words
        for name in given.get("--model", "all").split(","):
            source = checkpoints_resolve.is_source(name, families.files(NOWHERE))
            if not source and name not in THEIR_FAMILIES:
                families.load(name, NOWHERE)


def test_the_readme_and_the_docs_have_commands_of_each_kind() -> None:
    programs = {Path(words[0]).name for page in PAGES for words in commands(page)}
    assert {"pytest", "vllm-gates", "python", "docker"} <= programs


@pytest.mark.parametrize(
    "line",
    [
        "pytest --modle qwen3.5",
        "pytest --model qwen3.5 --lane cpu --base-url URL",
        "pytest --model qwen3.5 --samples many",
        "pytest --model qwen3.5 -m 'boot or'",
        "vllm-gates explane server.log",
        "vllm-gates plan --confg X",
        "python benchmarks/no_such.py",
        "python benchmarks/kill.py --tims 3",
        "python -m pytest_vllm_gates.no_such",
        "python -m pytest_vllm_gates.environment.relock --chek cpu.in",
        "srun --gpus=2 pytest --modle qwen3.5",
        "sh -c 'vllm-gates allreduce --lain here'",
        "KEY=$(secret) pytest --modle qwen3.5",
        "echo x | vllm-gates explain - --bad",
        "frobnicate --model qwen3.5",
        "nox -s unti",
    ],
)
def test_a_command_that_its_program_refuses_is_noticed(line: str, config: pytest.Config) -> None:
    page = f"```console\n{line}      what it does\n```\n"
    (found,) = typed.lines(page)
    assert found == line
    with pytest.raises(REFUSED):
        typed.all_tried(found, config)


def test_what_is_a_command_on_a_page() -> None:
    page = """
`pytest --model a` and `pytest` and ``not this``; `--option` of `vllm-gates plan`

```text
$ vllm-gates lane list
  pytest is output here
pytest --model b -m "x or y"    what it does
pytest is what I say
```

```toml
pytest --model c
```

```console
A=1 pytest \\
  --model d > file && vllm-gates servers stop [NAME|--all]   # all
```
"""
    assert [words for line in typed.lines(page) for words in typed.meant(line)] == [
        ["vllm-gates", "lane", "list"],
        ["pytest", "--model", "b", "-m", "x or y"],
        ["pytest", "is", "what", "I", "say"],
        ["pytest", "--model", "d"],
        ["vllm-gates", "servers", "stop"],
        ["pytest", "--model", "a"],
        ["vllm-gates", "plan", "--help"],
    ]
