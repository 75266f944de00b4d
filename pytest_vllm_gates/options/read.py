"""The command line and `[tool.pytest.ini_options]`, read once into one frozen `Options`."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.options import defaults, names, table
from pytest_vllm_gates.options.kinds import Given
from pytest_vllm_gates.options.record import Option, options_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.options.table import Options

REPRO = "repro"


class CommandLine:
    """What was typed and set, by the fields of `Options`."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.options = {option.field: option for option in options_of(table.Options)}
        self.claimed = names.claimed(config, [*self.options.values()])
        theirs = {name.short for name in self.claimed}
        self.spelled = {
            field: option.long if option.name in theirs else option.name
            for field, option in self.options.items()
        }

    def typed(self, option: Option) -> Any:
        """Return the value on the command line; None where there is none."""
        return self.config.getoption(option.ini)

    def given(self, option: Option) -> Any:
        """Return the value on the command line, else the setting, else None."""
        value = self.typed(option)
        # An incident is named for one run, and was not seen with a project's defaults.
        repro = self.options[REPRO]
        if value is not None or option == repro or (option.from_incident and self.typed(repro)):
            return value
        overridden = any(
            word.partition("=")[0] == option.ini for word in self.config.option.override_ini or ()
        )
        if self.unread and not overridden:
            from pytest_vllm_gates.options import settings  # noqa: PLC0415 - seldom

            return settings.value(option, self.unread[1])
        return self.config.getini(option.ini)

    @cached_property
    def unread(self) -> tuple[Path, Mapping[str, Any]] | None:
        """The project's configuration and its table, where pytest reads another one or none."""
        config = self.config
        chosen = config.option.rootdir or config.option.inifilename
        # Without an option of ours no path of theirs has led pytest away: then it is inert.
        if chosen or all(self.typed(option) is None for option in self.options.values()):
            return None
        from pytest_vllm_gates.options import settings  # noqa: PLC0415

        project = project_of(config)
        if config.inipath and config.inipath.is_relative_to(project):
            return None
        return settings.of_project(project)

    def read(self, option: Option) -> Any:
        """Return what the field holds of a value that is given."""
        name, typed = self.spelled[option.field], self.typed(option) is not None
        root = self.unread[0].parent if self.unread else None
        return option.kind.read(Given(name, self.given(option), typed, self.config, root))

    def message(self, template: str) -> str:
        """Return a message of the table with the options as this run spells them."""
        # Braces stand for options alone; a value that a person typed is never in a template.
        return template.format_map(self.spelled)


def parse(config: pytest.Config) -> Options | None:
    """Return the options, or None without `--model`; raises `pytest.UsageError` for a mistake."""
    line = CommandLine(config)
    models = line.options["models"]
    if line.typed(line.options[REPRO]):
        _refuse_with_repro(line)
    elif not (line.given(models) and line.read(models)):
        if line.typed(models):
            name = line.spelled["models"]
            raise pytest.UsageError(f"{name} names no family: pytest {name} NAME")
        _refuse_asleep(line)
        return None
    _refuse_contradictions(line)
    project = project_of(config)
    found = table.Options(
        rootdir=project,
        invocation_dir=config.invocation_params.dir,
        test_root=None if config.rootpath == project else config.rootpath,
        verbose=config.get_verbosity() > 0,
        claimed=line.claimed,
        **{
            field: line.read(option) for field, option in line.options.items() if line.given(option)
        },
    )
    return _settled(found)


def project_of(config: pytest.Config) -> Path:
    """Return the folder in which a run looks for lanes, families and goldens.

    `--rootdir` and `-c` say which it is. Otherwise it is found from where pytest was called, or,
    outside of every project, from the paths of tests that were typed.
    """
    from pytest_vllm_gates.catalog import project  # noqa: PLC0415 - an inert plugin is light

    if config.option.rootdir or config.option.inifilename:
        return config.rootpath
    here = config.invocation_params.dir
    named = [Path(here, str(name).partition("::")[0]) for name in config.option.file_or_dir]
    return project.find(here, *(path for path in named if not path.is_relative_to(project.PACKAGE)))


def _settled(found: Options) -> Options:
    """Return the options with the values that follow from others."""
    alone = found.base_url or found.against or found.update_baseline
    history = found.history or found.rootdir / defaults.HISTORY
    return dataclasses.replace(
        found,
        report_dir=found.report_dir or (found.rootdir / defaults.REPORT if found.against else None),
        history=history if found.keep_history else None,
        # A server that is measured against another, or recorded, is not kept.
        keep_server_s=0.0 if alone else found.keep_server_s,
        require_promotion=found.require_promotion or bool(found.against),
        incidents=found.incidents and not found.repro,
    )


def _refuse_with_repro(line: CommandLine) -> None:
    """Refuse options that would have an incident judged otherwise than it was."""
    for field, option in line.options.items():
        if not option.with_repro and line.typed(option):
            raise pytest.UsageError(
                f"{line.spelled[REPRO]} sends one incident again, as it was, and "
                f"{line.spelled[field]} asks for something else: give only one"
            )


def _refuse_contradictions(line: CommandLine) -> None:
    """Refuse options that exclude each other, and those without the one that they need."""
    for option in line.options.values():
        for other, message in option.excludes.items():
            if line.given(option) and line.given(line.options[other]):
                raise pytest.UsageError(line.message(message))
        if option.needs and line.typed(option):
            other, message = option.needs
            if not line.given(line.options[other]):
                raise pytest.UsageError(line.message(message))


def _refuse_asleep(line: CommandLine) -> None:
    """Refuse options that only make sense with `--model`, rather than ignore them silently."""
    model = line.spelled["models"]
    for field, option in line.options.items():
        if option.wakes or line.typed(option) is None:
            continue
        if option.needs and line.options[option.needs[0]].wakes:
            raise pytest.UsageError(line.message(option.needs[1]))
        flag = line.spelled[field]
        raise pytest.UsageError(f"{flag} needs {model}: pytest {model} NAME {flag} ...")
