"""The names of the options on the command line, and clashes with other plugins' names.

Each option has a long name, `--gates-lane`, that only this plugin uses. The short one, `--lane`, is
an alias that yields to every other plugin and conftest.py that declares it, before or after this
plugin.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_vllm_gates.options.record import Option

GROUP = "vllm-gates"
TITLE = "vLLM gates (inert without --model)"
SOMEBODY = "another plugin"


@dataclass(frozen=True)
class ClaimedName:
    """A short name that belongs to another plugin."""

    short: str
    long: str
    owner: str

    def __str__(self) -> str:
        return f"{self.short} belongs to {self.owner} here; use {self.long}"


claimed_key = pytest.StashKey[tuple[ClaimedName, ...]]()


def declare(parser: pytest.Parser, options: Sequence[Option]) -> None:
    """Declare every option under the names that are free, and its setting."""
    group = parser.getgroup(GROUP, TITLE)
    for option in options:
        # Looked up for each option: two may have the same short name by mistake.
        free = option.short and option.short not in _declared(parser)
        names = [option.short, option.long] if free else [option.long]
        group.addoption(
            *filter(None, names), dest=option.ini, default=None, help=option.help,
            **option.arguments,
        )  # fmt: skip
        parser.addini(
            option.ini, f"{option.help} (as {option.name})", type=option.kind.ini, default=None  # type: ignore[arg-type]
        )  # fmt: skip


class ShortNames:
    """The aliases of one parser, which can be withdrawn and offered again.

    argparse and pytest cannot remove a name, so this edits their data: the names of an option, in
    pytest's record and in argparse's action, and the tables from a name to these.
    """

    def __init__(self, parser: pytest.Parser, options: Sequence[Option]) -> None:
        self._parser = parser
        self._options = {option.ini: option for option in options if option.short}
        self._depth = 0

    def withdraw(self) -> None:
        """Leave the short names to another plugin, which may declare them now."""
        self._depth += 1
        for option, argument in self._arguments():
            if option.name in argument.names():
                for names in self._lists(option, argument):
                    names.remove(option.name)
                for table in self._tables():
                    table.pop(option.name, None)

    def offer(self) -> None:
        """Take the short names that are free."""
        self._depth -= 1
        if self._depth:  # a plugin that registers another one while it declares its own options
            return
        declared = _declared(self._parser)
        for option, argument in self._arguments():
            if option.name not in declared:
                for names in self._lists(option, argument):
                    names.insert(0, option.name)
                for table in self._tables():
                    table[option.name] = table[option.long]

    def _arguments(self) -> Iterator[tuple[Option, Any]]:
        for argument in self._parser.getgroup(GROUP).options:
            if option := self._options.get(argument.dest):
                yield option, argument

    def _lists(self, option: Option, argument: Any) -> Iterator[list[str]]:
        """Yield the lists of an option's names: pytest's until 9.0, and argparse's from then on."""
        if own := getattr(argument, "_long_opts", None):
            yield own
        for action in (table[option.long] for table in self._tables()[:1]):
            yield action.option_strings

    def _tables(self) -> list[dict[str, Any]]:
        """Return the tables by name: argparse's of actions, and since 9.1 pytest's of targets."""
        optparser = getattr(self._parser, "optparser", None)
        if optparser is None:  # until 9.0 it is made when the options are parsed
            return []
        found = [optparser._option_string_actions]  # noqa: SLF001
        return [*found, *filter(None, [getattr(self._parser, "_opt2dest", None)])]


def _declared(parser: pytest.Parser) -> set[str]:
    """Return every name that any plugin has declared so far."""
    groups = [*parser._groups, parser._anonymous]  # noqa: SLF001
    return {name for group in groups for option in group.options for name in option.names()}


def give_way(
    parser: pytest.Parser, manager: pytest.PytestPluginManager, options: Sequence[Option]
) -> None:
    """Leave the short names to the plugins and conftest.py files that are loaded from now on.

    The short names are withdrawn while one of them declares its options, and offered again in
    between, because pytest reads the command line several times until everything is loaded.
    """
    short_names = ShortNames(parser, options)
    watching = True

    def stop() -> None:
        nonlocal watching
        if watching:
            watching = False
            undo()

    def before(hook: str, *_: object) -> None:
        if hook == "pytest_addoption":
            short_names.withdraw()
        elif hook == "pytest_configure":  # where a conftest.py loaded this plugin
            stop()

    def after(_: object, hook: str, *__: object) -> None:
        if hook == "pytest_addoption":
            short_names.offer()
        elif hook == "pytest_load_initial_conftests":
            stop()

    undo = manager.add_hookcall_monitoring(before, after)


def release(config: pytest.Config, options: Sequence[Option]) -> None:
    """Give up the short names after the command line is read.

    A folder's conftest.py is loaded when its tests are collected, and may declare them then.
    """
    if not config.option.help:  # the help lists the names that can be typed
        ShortNames(config._parser, options).withdraw()  # noqa: SLF001


def claimed(config: pytest.Config, options: Sequence[Option]) -> tuple[ClaimedName, ...]:
    """Return the short names of other plugins; the first call must precede `release`."""
    if claimed_key not in config.stash:
        group = config._parser.getgroup(GROUP)  # noqa: SLF001
        ours = {name for argument in group.options for name in argument.names()}
        config.stash[claimed_key] = tuple(
            ClaimedName(option.short, option.long, _owner(config.pluginmanager, option.short))
            for option in options
            if option.short and option.short not in ours
        )
    return config.stash[claimed_key]


def _owner(manager: pytest.PytestPluginManager, name: str) -> str:
    """Return the package or plugin whose `pytest_addoption` declares a name."""
    packages = {id(plugin): dist.project_name for plugin, dist in manager.list_plugin_distinfo()}
    for hook in manager.hook.pytest_addoption.get_hookimpls():
        code = getattr(hook.function, "__code__", None)
        if code and name in _constants(code):
            return packages.get(id(hook.plugin)) or hook.plugin_name
    return SOMEBODY


def _constants(code: CodeType) -> Iterator[object]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _constants(constant)
        elif isinstance(constant, tuple):
            yield from constant
        else:
            yield constant
