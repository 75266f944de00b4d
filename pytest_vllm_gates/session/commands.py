"""The command that runs one check of a run again, and nothing else.

What of a run the commands are made of that come after it.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog.flags import without
from pytest_vllm_gates.options import spelling
from pytest_vllm_gates.outcomes import Outcome
from pytest_vllm_gates.report import checks as report_checks
from pytest_vllm_gates.session import collection
from pytest_vllm_gates.verdict import next_steps
from pytest_vllm_gates.verdict.next_steps import JudgedFamily, RunSummary

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pytest

    from pytest_vllm_gates.options.table import Options
    from pytest_vllm_gates.session.run import Run, Subject
    from pytest_vllm_gates.verdict.verdict import Verdict

# What pytest's -k takes as one name; a test is taken whose own name holds it.
NAME = re.compile(r"(?:\w|[:+.\[\]\\/-])+")
OPERATORS = ("and", "or", "not")
WELL = (Outcome.PASS, Outcome.NOT_APPLICABLE)


def commands(run: Run, shipped: Collection[str]) -> dict[tuple[str, str, str], str]:
    """Return the command by (family, gate, test) for each test that did not pass.

    `shipped` are the names of the gates that ship.
    """
    subjects = {subject.family.name: subject for subject in run.subjects}
    own = {
        gate: path
        for path in (nodeid.partition("::")[0] for nodeid in run.finished)
        if (gate := Path(path).stem.removeprefix("test_")) not in shipped
    }
    return {
        (result.family, result.gate, result.test): command(
            run, subjects[result.family], result.gate, result.test, own
        )
        for result in run.results
        if result.outcome not in WELL and result.family in subjects
    }


def command(run: Run, subject: Subject, gate: str, test: str, files: Mapping[str, str]) -> str:
    """Return what a person types to run this test of this gate again.

    `files` are those of gates that do not ship: the file is named, for no marker selects them.
    """
    words = ["pytest", *spelling.repeated(_options_for(run, subject), gate)]
    words += [files[gate]] if gate in files else ["-m", gate]
    if names := [entry for entry in NAME.findall(test) if entry.lower() not in OPERATORS]:
        words += ["-k", " and ".join(names)]
    return shlex.join(words)


def _options_for(run: Run, subject: Subject) -> Options:
    """Return the options of a run that judges one family alone, where this run judged it."""
    url, checkpoint = run.lane.base_url, run.options.checkpoint
    if not checkpoint and subject.why:  # the weights were named in place of the family
        checkpoint = subject.checkpoint.source
    return dataclasses.replace(
        run.options,
        models=(subject.family.name,),
        base_url=url,
        lane=None if url else run.lane.name,
        checkpoint=checkpoint,
    )


def following(verdict: Verdict, config: pytest.Config, run: Run) -> tuple[str, ...]:
    """Return the commands that would turn HOLD into PROMOTE; an incident sent again has none."""
    return () if run.options.repro else next_steps.commands(verdict, _ran(config, run))


def _ran(config: pytest.Config, run: Run) -> RunSummary:
    named = [entry for entry in config.option.file_or_dir if str(collection.GATES) in entry]
    arguments = [str(argument) for argument in config.invocation_params.args]
    return RunSummary(
        arguments=promoting(
            [argument for argument in arguments if argument not in named], run.options
        ),
        families={subject.family.name: _judged(subject, run) for subject in run.subjects},
        gates=frozenset(collection.gate_files()),
        names=spelling.by_field(run.options),
    )


def promoting(arguments: Sequence[str], options: Options) -> tuple[str, ...]:
    """Return pytest's arguments without the options of a run that never promotes."""
    left_out = spelling.spelled(options, lambda option: not option.promotes)
    return tuple(without(arguments, *left_out))


def _judged(subject: Subject, run: Run) -> JudgedFamily:
    boot = run.boots.get(subject.family.name)
    log = boot.evidence.get("log") if boot else None
    family, checkpoint, lane = subject.family, subject.checkpoint, run.lane
    return JudgedFamily(
        # Where the family was found from its weights, they are what was named.
        model=checkpoint.source if subject.why else family.name,
        log=str(log) if log else None,
        preflight=None
        if lane.base_url
        else report_checks.preflight_command(family, checkpoint, lane.name),
    )
