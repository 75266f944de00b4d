"""Options beside other plugins that want the same names, whichever is loaded first."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from servers import running
from servers.stub import StubServer

from pytest_vllm_gates.options import table
from pytest_vllm_gates.options.record import options_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conftest import Project

OURS = "pytest_vllm_gates.plugin"
DATA = Path(__file__).parents[1] / "data" / "plugin_options.toml"
PLUGINS = tomllib.loads(DATA.read_text(encoding="utf-8"))["plugin"]
OPTIONS = options_of(table.Options)
SHORT = sorted(option.short for option in OPTIONS if option.short)
# Each with the distributions whose plugins it needs.
REAL = {
    "pytest-base-url": (),
    "pytest-playwright": ("pytest-base-url",),
    "pytest-selenium": ("pytest-base-url", "pytest-variables"),
    "pytest-django": (),
    "pytest-flask": (),
    "pytest-bdd": (),
    "pytest-httpx": (),
    "pytest-mock": (),
}
LIMIT_S = 120
BELONGS = "vllm gates: --base-url belongs to {} here; use --gates-base-url"


def modules(*distributions: str) -> list[str]:
    """Return the plugin modules of these distributions."""
    found = entry_points(group="pytest11")
    return [
        entry.value
        for name in distributions
        for entry in found
        if entry.dist and entry.dist.name.lower().replace("_", "-") == name
    ]


def run(folder: Path, plugins: Sequence[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder with these plugins alone, loaded in this order."""
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    named = [word for plugin in plugins for word in ("-p", plugin)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *named, *arguments],
        cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip


def ordered(order: str, theirs: Sequence[str]) -> list[str]:
    return [OURS, *theirs] if order == "ours first" else [*theirs, OURS]


both_orders = pytest.mark.parametrize("order", ["ours first", "theirs first"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_plain.py").write_text("def test_plain():\n    pass\n")
    return tmp_path


@both_orders
@pytest.mark.parametrize("name", REAL)
def test_plain_run_beside_a_real_plugin_passes(folder: Path, name: str, order: str) -> None:
    theirs = modules(*REAL[name], name)
    assert theirs, f"{name} is not installed"
    result = run(folder, ordered(order, theirs))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 passed" in result.stdout


def test_plain_run_with_every_installed_plugin_passes(folder: Path) -> None:
    env = {**os.environ, "PYTEST_ADDOPTS": ""}
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert "base-url" in result.stdout.partition("plugins: ")[2].partition("\n")[0]


@both_orders
def test_claimed_name_gives_its_value_to_the_other_plugin(folder: Path, order: str) -> None:
    (folder / "test_plain.py").write_text(
        "def test_theirs(base_url):\n    assert base_url == 'http://theirs.example'\n"
    )
    plugins = ordered(order, modules("pytest-base-url"))
    result = run(folder, plugins, "--base-url", "http://theirs.example")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 passed" in result.stdout


@both_orders
def test_gates_run_with_the_long_name_and_the_header_names_it(folder: Path, order: str) -> None:
    plugins = ["syrupy", *ordered(order, modules("pytest-base-url"))]
    with running(StubServer()) as server:
        result = run(
            folder, plugins, "--model", "qwen3.5", "--gates-base-url", server.base_url,
            "-m", "boot", "-k", "test_boots", "--gates-report", "out",
        )  # fmt: skip
    assert BELONGS.format("pytest_base_url.plugin") in result.stdout
    assert "1 passed" in result.stdout, result.stdout + result.stderr
    assert "--gates-base-url" in (folder / "out" / "verdict.json").read_text()


def test_header_names_the_package_of_an_installed_plugin(folder: Path) -> None:
    env = {**os.environ, "PYTEST_ADDOPTS": ""}
    with running(StubServer()) as server:
        result = subprocess.run(
            [sys.executable, "-m", "pytest", "--model", "qwen3.5", "--collect-only", "-m", "boot",
             "--gates-base-url", server.base_url],
            cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    assert BELONGS.format("pytest-base-url") in result.stdout


def test_short_name_is_kept_if_no_other_plugin_declares_it(folder: Path) -> None:
    with running(StubServer()) as server:
        result = run(
            folder, ["syrupy", OURS], "--model", "qwen3.5", "--base-url", server.base_url,
            "-m", "boot", "-k", "test_boots",
        )  # fmt: skip
    assert "belongs to" not in result.stdout
    assert "1 passed" in result.stdout, result.stdout + result.stderr


@pytest.fixture
def greedy(folder: Path) -> str:
    """A plugin that declares every short name of ours."""
    names = ", ".join(repr(name) for name in SHORT)
    (folder / "greedy.py").write_text(
        "def pytest_addoption(parser):\n"
        f"    for name in ({names},):\n"
        "        parser.addoption(name, dest='greedy' + name.replace('-', '_'), default=None)\n"
    )
    return "greedy"


@both_orders
def test_every_short_name_gives_way(
    folder: Path, greedy: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(folder))
    plugins = ordered(order, [greedy])
    assert run(folder, plugins).returncode == 0
    told = run(folder, plugins, "--model", "theirs", "--lane", "theirs")
    assert told.returncode == 0, told.stdout + told.stderr
    asked = run(folder, plugins, "--gates-model", "nobody")
    assert asked.returncode == pytest.ExitCode.USAGE_ERROR
    assert "unknown family 'nobody'" in asked.stdout + asked.stderr


def test_conftest_may_declare_a_short_name(folder: Path) -> None:
    (folder / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--lane', default='theirs')\n"
    )
    (folder / "test_plain.py").write_text(
        "def test_theirs(request):\n    assert request.config.getoption('--lane') == 'mine'\n"
    )
    result = run(folder, [OURS], "--lane", "mine")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin["name"])
def test_no_plugin_has_a_long_name_of_ours(plugin: dict[str, object]) -> None:
    theirs = plugin["options"]
    assert isinstance(theirs, list)
    assert not {option.long for option in OPTIONS} & set(theirs)


def test_fifty_plugins_are_listed() -> None:
    assert len([plugin for plugin in PLUGINS if plugin["options"]]) >= 50


def test_only_known_short_names_are_claimed() -> None:
    claimed = {name for plugin in PLUGINS for name in plugin["options"]} & set(SHORT)
    assert claimed == {"--base-url"}


def test_conftest_of_a_subfolder_may_declare_a_short_name(folder: Path) -> None:
    """Collection loads it, once the command line is read."""
    inner = folder / "inner" / "deep"
    inner.mkdir(parents=True)
    (inner / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--lane', default='theirs')\n"
    )
    (inner / "test_inner.py").write_text(
        "def test_theirs(request):\n    assert request.config.getoption('--lane') == 'theirs'\n"
    )
    result = run(folder, [OURS])
    assert "2 passed" in result.stdout, result.stdout + result.stderr


def test_plugin_may_load_another_while_it_declares_options(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(folder))
    (folder / "inner.py").write_text("def pytest_addoption(parser):\n    pass\n")
    (folder / "outer.py").write_text(
        "def pytest_addoption(parser, pluginmanager):\n"
        "    pluginmanager.import_plugin('inner')\n"
        "    parser.addoption('--soak', default='theirs')\n"
    )
    result = run(folder, [OURS, "outer"], "--soak", "mine")
    assert "1 passed" in result.stdout, result.stdout + result.stderr


def test_abbreviated_name_is_unknown(folder: Path) -> None:
    result = run(folder, [OURS], "--gates-base", "http://127.0.0.1:8000/v1")
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert "unrecognized arguments: --gates-base" in result.stdout + result.stderr


@both_orders
def test_help_lists_the_names_that_can_be_typed(folder: Path, order: str) -> None:
    result = run(folder, ordered(order, modules("pytest-base-url")), "--help")
    assert result.stdout.count("--base-url") == result.stdout.replace("--gates-base-url", "").count(
        "--base-url"
    )
    assert "  --gates-base-url=URL" in result.stdout
    assert "  --lane=NAME, --gates-lane=NAME" in result.stdout


CLAIMED = (
    "--model", "--lane", "--base-url", "--answer-tokens", "--update-golden", "--no-overlay",
    "--against", "--times",
)  # fmt: skip
CONFTEST = f"""
def pytest_addoption(parser):
    for name in {CLAIMED!r}:
        parser.addoption(name, action="append")
"""


@pytest.fixture
def crowded(project: Project) -> Project:
    """A project whose conftest.py declares some short names of ours."""
    project.write("conftest.py", CONFTEST)
    return project


def test_printed_commands_use_the_names_that_are_ours(crowded: Project) -> None:
    crowded.lane("dies-after:3")
    result = crowded.pytest(
        "--gates-model", "qwen3.5", "--gates-lane", "fake", "--gates-report", "out",
        "--gates-answer-tokens", "77", "--samples", "3", "--gates-no-overlay",
    )  # fmt: skip
    assert result.ret == 1
    belonging = [line for line in result.outlines if " belongs to " in line]
    conftest = crowded.path / "conftest.py"
    assert sorted(belonging) == [
        f"vllm gates: {name} belongs to {conftest} here; use --gates-{name.removeprefix('--')}"
        for name in sorted(CLAIMED)
    ]
    commands = [
        test["reproduce"]
        for family in crowded.verdict()["families"]
        for gate in family["gates"]
        for test in gate["tests"]
        if gate["gate"] == "streaming"
    ]
    assert commands
    beginning = (
        "pytest --gates-model qwen3.5 --gates-lane fake --gates-no-overlay "
        "--gates-answer-tokens 77 -m streaming -k "
    )
    assert all(command.startswith(beginning) for command in commands)


def test_next_steps_and_notes_use_the_names_that_are_ours(crowded: Project) -> None:
    asked = ("--gates-model", "qwen3.5", "--gates-lane", "fake", "--gates-report", "out")
    title = '[[messages]]\nrole = "user"\ncontent = "Hm?"\n'
    crowded.write("conversations/new.toml", f'title = "new"\n{title}')
    crowded.pytest(*asked, "--lane", "theirs", "--update-golden", "theirs")
    whole = (
        "pytest -p no:cacheprovider --gates-model qwen3.5 --gates-lane fake --gates-report out "
        "--lane theirs --update-golden theirs"
    )
    next_steps = crowded.verdict()["next"]
    assert next_steps == [f"{whole} -m words --gates-update-golden", whole]
    crowded.pytest(*asked, "--gates-update-golden", "-m", "words")
    verdict = crowded.verdict()
    assert any("run it again without --gates-update-golden" in why for why in verdict["reasons"])
    assert verdict["next"][-1].endswith(
        "--gates-model qwen3.5 --gates-lane fake --gates-report out"
    )


def test_other_lane_gets_the_names_that_are_ours(crowded: Project) -> None:
    crowded.lane()
    (crowded.path / "lanes" / "fake.toml").rename(crowded.path / "lanes" / "stable.toml")
    crowded.lane()
    crowded.pytest(
        "--gates-model", "qwen3.5", "--gates-lane", "fake", "--gates-against", "stable",
        "--lane", "theirs", "--gates-report", "out", "-m", "boot",
    )  # fmt: skip
    assert crowded.verdict()["against"]["lane"]["name"] == "stable"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--gates-lane x", "--gates-lane needs --gates-model: pytest --gates-model NAME --gates-l"),
        ("--gates-times 2", "--gates-times needs --repro: pytest --repro INCIDENT --gates-times N"),
        ("--gates-model a --gates-base-url x", "--gates-base-url: expected a URL like "),
        ("--gates-model ,", "--gates-model needs the name of a family: pytest --gates-model NAME"),
        (
            "--gates-model a --gates-lane b --gates-base-url http://127.0.0.1:1/v1",
            "--gates-base-url judges a running server and --gates-lane boots one",
        ),
        ("--gates-model a --pairs 4", "--pairs limits the boots of --gates-against NAME"),
    ],
)
def test_errors_use_the_names_that_are_ours(crowded: Project, arguments: str, message: str) -> None:
    result = crowded.pytest(*arguments.split())
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()
