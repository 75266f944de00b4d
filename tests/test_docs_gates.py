"""The pages of the gates: one each, with every test of it, and nothing that does not exist."""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from faults import (
    adapters,
    boot,
    chat_template,
    contracts,
    dialects,
    isolation,
    long_context,
    pooling,
    reasoning,
    robustness,
    sampling,
    stop,
    streaming,
    structured,
    tools,
    vision,
)

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import family as families, lane as lanes, plans, toml
from pytest_vllm_gates.cli.main import COMMANDS
from pytest_vllm_gates.options import names as options_names
from pytest_vllm_gates.options.record import options_of
from pytest_vllm_gates.options.table import Options
from pytest_vllm_gates.prompts import limits
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import BaseModel

DOCS = Path(__file__).parent.parent / "docs"
PACKAGE = verdict_gates.GATES.parent
PAGES = {page.stem: page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("gates/*.md"))}
GATES = verdict_gates.gate_files()
SECTIONS = (
    "What it catches", "How it judges", "What it cannot see", "How to read a failure",
    "How to accept a change", "Settings",
)  # fmt: skip
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
TEST = re.compile(r"(?<!\w)test_\w+")
OURS = ("pytest", "vllm-gates")
# Tables whose keys a family and a lane pass on, and what they are checked against there.
LAYERED: dict[str, type[BaseModel]] = {"load": plans.Traffic, "throughput": plans.ThroughputPlan}
VALUES = {"poisson", "constant"}
TELLING = 16
"""Characters from which on words are a failure's own."""
FAULTS = {
    entry.__name__.rpartition(".")[2]: entry.FAULTS.all
    for entry in (
        adapters, boot, chat_template, contracts, dialects, isolation, long_context, pooling,
        reasoning,
        robustness, sampling, stop, streaming, structured, tools, vision,
    )
}  # fmt: skip
EACH = pytest.mark.parametrize("gate", sorted(GATES))


def spans(text: str) -> list[str]:
    """Return what stands in backticks, fenced blocks aside."""
    return SPAN.findall(FENCED.sub("", text))


def section(text: str, name: str) -> str:
    return text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def checks_of(gate: str) -> list[str]:
    """Return the names of a gate's tests."""
    tree = ast.parse(GATES[gate].read_text(encoding="utf-8"))
    functions = [entry.name for entry in tree.body if isinstance(entry, ast.FunctionDef)]
    return [name for name in functions if name.startswith("test_")]


@functools.cache
def options() -> frozenset[str]:
    """Return every option of the plugin and of `vllm-gates`."""
    plugin = pytest.Parser(_ispytest=True)
    options_names.declare(plugin, options_of(Options))
    found = {
        name for group in plugin._groups for option in group.options for name in option.names()
    }
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    for name in COMMANDS:
        importlib.import_module(f"pytest_vllm_gates.cli.{name}").declare(commands)
    return frozenset(found.union(*_options_of(parser)))


def _options_of(parser: argparse.ArgumentParser) -> Iterator[list[str]]:
    for action in parser._actions:
        yield list(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for choice in action.choices.values():
                yield from _options_of(choice)


def commands(text: str) -> list[str]:
    """Return the lines of fenced blocks that are commands of ours."""
    lines = "\n".join(FENCED.findall(text)).splitlines()
    return [line.removeprefix("$ ") for line in lines if line.removeprefix("$ ").startswith(OURS)]


def unknown_options(text: str) -> set[str]:
    """Return the options of a page, in backticks and in commands of ours, that are none."""
    told = [span for span in spans(text) if not span.startswith("python ")] + commands(text)
    return {option for item in told for option in OPTION.findall(item)} - options()


def known(table: str, key: str) -> bool:
    """Return whether `[table] key` is one of a family's file or a lane's; no key, the table."""
    first, *rest = [*table.split("."), *filter(None, [key])]
    for record in (families.Family, lanes.Lane):
        if first in record.model_fields:
            below = LAYERED.get(first) or _table(record, first)
            if below is None:
                return not rest or first != "serve" or rest[0] in served()
            if _reaches(below, rest):
                return True
    return False


def _table(record: type[BaseModel], key: str) -> type[BaseModel] | None:
    return toml._table_in(record.model_fields[key].annotation)


def _reaches(record: type[BaseModel] | None, path: list[str]) -> bool:
    if not path:
        return True
    if record is None or path[0] not in record.model_fields:
        return False
    return _reaches(_table(record, path[0]), path[1:])


@functools.cache
def served() -> frozenset[str]:
    """Return every flag of vLLM's that a shipped family or lane sets."""
    nowhere = Path("/nowhere")
    tables: list[dict[str, Any]] = [
        lanes.load(name, nowhere).serve for name in lanes.files(nowhere)
    ]
    for family in families.load_all(nowhere):
        tables += [family.serve, *(checkpoint.serve for checkpoint in family.checkpoints)]
    return frozenset().union(*tables)


@functools.cache
def keys() -> frozenset[str]:
    """Return every key that a data file of ours may have."""
    for path in sorted(PACKAGE.glob("*/*.py")):
        if "toml.Record" in path.read_text(encoding="utf-8"):
            importlib.import_module(f"pytest_vllm_gates.{path.parent.name}.{path.stem}")
    found: set[str] = set()
    records = [toml.Record]
    for record in records:
        records += record.__subclasses__()
        found |= set(record.model_fields)
    return frozenset(found)


def unknown_settings(text: str) -> list[str]:
    """Return the settings of a page's table that are no option, key, file or folder."""
    found = []
    for row in re.findall(r"^\| (`.*)\|$", section(text, "Settings"), re.MULTILINE):
        names, _, meaning = row.partition(" | ")
        found += [entry for entry in SPAN.findall(names) if not _is_setting(entry)]
        words = [entry for entry in SPAN.findall(meaning) if entry.isidentifier()]
        found += [word for word in words if word not in keys() | served() | VALUES]
    return found


def _is_setting(name: str) -> bool:
    if name.startswith("--"):
        return name in options()
    if name.startswith("VLLM_GATES_"):
        return name in vars(limits).values()
    if table := re.fullmatch(r"\[([\w.]+)\](?: (\w+))?", name):
        return known(table[1], table[2] or "")
    if name.endswith(".toml"):
        return (data.FOLDER / name).is_file()
    folders = (PACKAGE / name, data.FOLDER / name)
    return name in lanes.Lane.model_fields or (
        name.isidentifier() and any(folder.is_dir() for folder in folders)
    )


def test_every_gate_has_its_page_and_every_page_its_gate() -> None:
    assert list(PAGES) == sorted(GATES)


@EACH
def test_a_page_is_called_as_its_gate_and_has_all_sections(gate: str) -> None:
    assert PAGES[gate].startswith(f"# `{gate}`\n")
    assert tuple(re.findall(r"^## (.*)$", PAGES[gate], re.MULTILINE)) == SECTIONS
    assert all(section(PAGES[gate], name).strip() for name in SECTIONS)
    assert len(PAGES[gate].splitlines()) <= 120


@EACH
def test_every_test_of_a_gate_stands_on_its_page(gate: str) -> None:
    rows = re.findall(r"^\| `(test_\w+)` \|", section(PAGES[gate], "How it judges"), re.MULTILINE)
    assert rows == checks_of(gate)


def test_every_test_that_a_page_names_exists() -> None:
    there = {name for gate in GATES for name in checks_of(gate)}
    named = {name for text in PAGES.values() for span in spans(text) for name in TEST.findall(span)}
    assert named == there


@EACH
def test_every_option_on_a_page_exists(gate: str) -> None:
    assert unknown_options(PAGES[gate]) == set()


def test_an_option_that_is_none_is_seen() -> None:
    assert unknown_options("Say `--modle glm`, `--soak` or `vllm-gates plan --confg X`.") == {
        "--modle",
        "--confg",
    }
    page = "```console\npytest --model glm --samplse 3\n--not-a-command\n```\n"
    assert unknown_options(page) == {"--samplse"}


@EACH
def test_every_setting_of_a_page_exists(gate: str) -> None:
    assert unknown_settings(PAGES[gate]) == []


@pytest.mark.parametrize(
    "setting",
    [
        "`--sok`", "`[load] concurency`", "`[load.limits] ttft`", "`[thinkng] open`",
        "`[serve] max_seqs`", "`nothing.toml`", "`batch_variant`", "`[load] rate` | in `sconds`",
    ],
)  # fmt: skip
def test_a_setting_that_is_none_is_seen(setting: str) -> None:
    page = f"# x\n\n## Settings\n\n| setting | meaning |\n| --- | --- |\n| {setting} | x |\n"
    assert len(unknown_settings(page)) == 1


def test_the_load_of_the_page_is_one() -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```$", PAGES["load"], re.MULTILINE | re.DOTALL)
    planned = plans.planned_traffic(tomllib.loads(block)["load"])
    assert (planned.rate, planned.limits.slo_attainment) == (12.0, 0.95)


@pytest.mark.parametrize("gate", sorted(FAULTS))
def test_a_page_has_words_that_a_fault_of_its_gate_brings_out(gate: str) -> None:
    text = " ".join(PAGES[gate].split())
    words = [" ".join(fault.says.split()) for fault in FAULTS[gate]]
    assert any(len(word) >= TELLING and word in text for word in words)


@pytest.mark.parametrize("page", [*PAGES, "../adding", "../families"])
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    path = (DOCS / "gates" / f"{page}.md").resolve()
    links = re.findall(r"\]\((?!http)([^)]+)\)", path.read_text(encoding="utf-8"))
    for link in links:
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.is_file(), link
        heads = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
        assert not anchor or anchor in [head.lower().replace(" ", "-") for head in heads], link
