"""Runs the gates on the lane of `--against`, in a separate pytest process.

Its outcomes, exit status and JUnit file stay apart from ours, and its report is complete.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.catalog.flags import without
from pytest_vllm_gates.client.endpoint import of_lane
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import WriteError
from pytest_vllm_gates.options import spelling
from pytest_vllm_gates.options.record import options_of
from pytest_vllm_gates.process.process import GuardedProcess
from pytest_vllm_gates.report import document as report_document
from pytest_vllm_gates.server.attach import attach
from pytest_vllm_gates.server.log import LogWatch, read_from
from pytest_vllm_gates.session.against import goldens
from pytest_vllm_gates.session.against.goldens import REPORT as FOLDER
from pytest_vllm_gates.session.golden_folders import FOLDER as GOLDENS
from pytest_vllm_gates.session.run import OtherRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pytest

    from pytest_vllm_gates.options.record import Option
    from pytest_vllm_gates.options.table import Options
    from pytest_vllm_gates.session.run import Run

LOG = "pytest.txt"
POLL_S, LAST_LINES = 0.5, 5

# Measured for both lanes at once, pair by pair, by our own run.
NOT_THERE = "throughput"

# Options of other plugins that are for this run alone: with a value, and without.
VALUED = ("--junitxml", "--junit-xml", "--html", "--maxfail", "-m")
FLAGS = (
    "--lf", "--last-failed", "--ff", "--failed-first", "--nf", "--new-first", "--sw", "--stepwise",
    "--exitfirst", "-x",
)  # fmt: skip


def run(
    config: pytest.Config, this_run: Run, progress: Callable[[str], None], report: Path
) -> OtherRun:
    """Run the gates that this run selects on the lane of `--against`.

    Its own report goes into a folder of `report`. A server that cannot be reached gets no requests.
    """
    folder, options = report / FOLDER, this_run.options
    if why := _out_of_reach(this_run):
        progress(why)
        return OtherRun(folder, None, why)
    log, verdict = folder / LOG, folder / report_document.NAME
    problem = f"the gates did not run on lane {options.against}"
    try:
        for old in (log, verdict):
            old.unlink(missing_ok=True)
        shutil.rmtree(folder / GOLDENS, ignore_errors=True)
        process = GuardedProcess(
            command(config, options, folder),
            env={**os.environ, goldens.VARIABLE: str(folder / GOLDENS)},
            log=log,
            cwd=config.invocation_params.dir,
        )
    except OSError as error:
        return OtherRun(folder, None, f"{problem}: {WriteError.of(log, error)}")
    try:
        watch = LogWatch(log)
        while process.wait(POLL_S) is None:
            watch.silent_s()
            progress(f"the gates on lane {options.against}: {watch.last_line}")
    finally:
        process.stop()
    try:
        return OtherRun(folder, bounded_read.json(verdict))
    except UserError:
        output = "\n".join(read_from(log).splitlines()[-LAST_LINES:])
        return OtherRun(folder, None, f"{problem}: {output}\nwhole output: {log}")


def _out_of_reach(this_run: Run) -> str:
    """Return why a running lane cannot be reached; '' if it can, or is to boot."""
    options, other_lane = this_run.options, this_run.against
    if other_lane is None or not other_lane.base_url:
        return ""
    try:
        endpoint = of_lane(other_lane, os.environ, options.api_key_env)
    except UserError as error:
        return str(error)
    pools = all(subject.family.pooling for subject in this_run.subjects)
    failure = attach(endpoint, options.stall_timeout_s, pools=pools).failure
    if failure is None or not failure.of_infrastructure:
        return ""
    return f"lane {other_lane.name} could not be reached: {failure.with_next_step}"


def command(config: pytest.Config, options: Options, folder: Path) -> list[str]:
    """Return the command that runs this run's gates on the other lane."""
    assert options.against  # noqa: S101 - or nothing asks for it
    names = spelling.by_field(options)
    arguments = [str(argument) for argument in config.invocation_params.args]
    selection = f"not {NOT_THERE}"
    if config.option.markexpr:
        selection = f"({config.option.markexpr}) and {selection}"
    overrides = [word for setting in _settings(options) for word in ("-o", setting)]
    return [
        *(sys.executable, "-m", "pytest"),
        *handed_on(arguments, options),
        # In one word: pytest looks for the project at a path that it does not recognise.
        *(names["lane"][0], options.against, f"{names['report_dir'][0]}={folder}"),
        *(names["keep_history"][0], "-m", selection, "-p", "no:cacheprovider", *overrides),
    ]


def handed_on(arguments: Sequence[str], options: Options) -> list[str]:
    """Return pytest's arguments without those that are for this run alone."""
    valued, flags, optional = spelling.spelled(options, _is_this_runs)
    return without(arguments, (*VALUED, *valued), (*FLAGS, *flags), optional)


def _settings(options: Options) -> Iterator[str]:
    """Yield settings that replace the project's for the options that are for this run alone."""
    for option in filter(_is_this_runs, options_of(type(options))):
        yield f"{option.ini}={'false' if option.kind.ini == 'bool' else ''}"


def _is_this_runs(option: Option) -> bool:
    return not option.other_lane
