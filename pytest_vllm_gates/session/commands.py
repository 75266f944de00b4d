"""The command that runs one check of a run again, and nothing else.

What of a run the commands are made of that come after it.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates import option_list as given
from pytest_vllm_gates.outcomes import Outcome
from pytest_vllm_gates.report import checks as report_checks
from pytest_vllm_gates.session import collection
from pytest_vllm_gates.verdict import next_steps
from pytest_vllm_gates.verdict.next_steps import JudgedFamily, RunSummary

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import pytest

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
    words = ["pytest", "--model", subject.family.name, *_where(run, subject), *_how(run, gate)]
    words += [files[gate]] if gate in files else ["-m", gate]
    if names := [entry for entry in NAME.findall(test) if entry.lower() not in OPERATORS]:
        words += ["-k", " and ".join(names)]
    return shlex.join(words)


def _where(run: Run, subject: Subject) -> Iterator[str]:
    """Yield what names the server and the weights."""
    options = run.options
    if run.lane.base_url:
        yield from ("--base-url", run.lane.base_url)
    else:
        yield from ("--lane", run.lane.name)
    if options.api_key_env_named:
        yield from ("--api-key-env", options.api_key_env)
    if options.checkpoint:
        yield from ("--checkpoint", options.checkpoint)
    elif subject.why:  # the family was found from its weights, which were named in its place
        yield from ("--checkpoint", subject.checkpoint.source)
    if not options.overlay:
        yield "--no-overlay"
    for name in options.without_repairs:
        yield from ("--without-repair", name)


def _how(run: Run, gate: str) -> Iterator[str]:
    """Yield what changes how the gate judges."""
    options = run.options
    if options.answer_tokens != given.ANSWER_TOKENS:
        yield from ("--answer-tokens", str(options.answer_tokens))
    if gate == "tools" and options.samples != given.SAMPLES:
        yield from ("--samples", str(options.samples))
    if gate == "throughput" and options.against:
        yield from ("--against", options.against)
    if gate != "load":
        return
    if options.soak_s:
        yield from ("--soak", f"{options.soak_s:g}s")
    if options.trace:
        yield from ("--load-trace", str(options.trace))
    if options.ramp:
        yield "--ramp"
    if workers := options.load_workers:
        far = f"@{workers.listen}" if workers.listen else ""
        yield from ("--load-workers", f"{workers.count}{far}") if workers.count else ()


def following(verdict: Verdict, config: pytest.Config, run: Run) -> tuple[str, ...]:
    """Return the commands that would turn HOLD into PROMOTE; an incident sent again has none."""
    return () if run.options.repro else next_steps.commands(verdict, _ran(config, run))


def _ran(config: pytest.Config, run: Run) -> RunSummary:
    named = [entry for entry in config.option.file_or_dir if str(collection.GATES) in entry]
    arguments = map(str, config.invocation_params.args)
    return RunSummary(
        arguments=tuple(argument for argument in arguments if argument not in named),
        families={subject.family.name: _judged(subject, run) for subject in run.subjects},
        gates=frozenset(collection.gate_files()),
    )


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
