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
def test_gates_run_with_the_long_name_and_the_header_says_so(folder: Path, order: str) -> None:
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


def test_short_name_is_kept_where_nobody_else_wants_it(folder: Path) -> None:
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
