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
    """The typed options and the settings, by the fields of `Options`."""

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
        # An incident is given for one run, and was not recorded with a project's defaults.
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
        """The project's configuration and its table, if pytest reads another file or none."""
        config = self.config
        chosen = config.option.rootdir or config.option.inifilename
        # Without an option of this plugin, no option's value misled pytest: the plugin is inert.
        if chosen or all(self.typed(option) is None for option in self.options.values()):
            return None
        from pytest_vllm_gates.options import settings  # noqa: PLC0415

        project = project_of(config)
        if config.inipath and config.inipath.is_relative_to(project):
            return None
        return settings.of_project(project)

    def read(self, option: Option) -> Any:
        """Return the field's value of the value that is given."""
        name, typed = self.spelled[option.field], self.typed(option) is not None
        root = self.unread[0].parent if self.unread else None
        return option.kind.read(Given(name, self.given(option), typed, self.config, root))

    def message(self, template: str) -> str:
        """Return a message of the table with the options as this run spells them."""
        # Only options are in braces; a template never contains a value that a person typed.
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
            raise pytest.UsageError(f"{name} needs the name of a family: pytest {name} NAME")
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

    `--rootdir` and `-c` set it. Otherwise it is found from the working folder of pytest's call, or,
    outside of every project, from the paths of tests that were typed.
    """
    from pytest_vllm_gates.catalog import project  # noqa: PLC0415 - an inert plugin is light

    if config.option.rootdir or config.option.inifilename:
        return config.rootpath
    here = config.invocation_params.dir
    named = [Path(here, str(name).partition("::")[0]) for name in config.option.file_or_dir]
    return project.find(here, *(path for path in named if not path.is_relative_to(project.PACKAGE)))


def _settled(found: Options) -> Options:
    """Return the options with the values that other options imply."""
    alone = found.base_url or found.against or found.update_baseline
    history = found.history or found.rootdir / defaults.HISTORY
    return dataclasses.replace(
        found,
        report_dir=found.report_dir or (found.rootdir / defaults.REPORT if found.against else None),
        history=history if found.keep_history else None,
        # A server that is compared with another, or recorded, is not kept.
        keep_server_s=0.0 if alone else found.keep_server_s,
        require_promotion=found.require_promotion or bool(found.against),
        incidents=found.incidents and not found.repro,
    )


def _refuse_with_repro(line: CommandLine) -> None:
    """Refuse options that would change how an incident is judged."""
    for field, option in line.options.items():
        if not option.with_repro and line.typed(option):
            raise pytest.UsageError(
                f"{line.spelled[REPRO]} sends one incident again, unchanged, and "
                f"{line.spelled[field]} would change it: give only one of them"
            )


def _refuse_contradictions(line: CommandLine) -> None:
    """Refuse options that exclude each other, and options without the one that they need."""
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
