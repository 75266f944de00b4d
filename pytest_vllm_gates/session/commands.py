"""The command that runs one check of a run again, and nothing else.

Also the parts of a run from which the commands after it are made.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog import project as projects
from pytest_vllm_gates.catalog.flags import without
from pytest_vllm_gates.catalog.lane import SUFFIX
from pytest_vllm_gates.incidents.types import LANE
from pytest_vllm_gates.options import spelling
from pytest_vllm_gates.outcomes import Outcome
from pytest_vllm_gates.report import checks as report_checks
from pytest_vllm_gates.session.against import goldens
from pytest_vllm_gates.verdict import gates as verdict_gates, next_steps
from pytest_vllm_gates.verdict.next_steps import JudgedFamily, RunSummary

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pytest

    from pytest_vllm_gates.options.table import Options
    from pytest_vllm_gates.session.run import Run, Subject
    from pytest_vllm_gates.verdict.verdict import Verdict

# One name of pytest's -k; it selects each test whose own name contains it.
NAME = re.compile(r"(?:\w|[:+.\[\]\\/-])+")
OPERATORS = ("and", "or", "not")
WELL = (Outcome.PASS, Outcome.NOT_APPLICABLE)


def commands(run: Run, shipped: Collection[str]) -> dict[tuple[str, str, str], str]:
    """Return the command by (family, gate, test) for each test that did not pass.

    They are for the project's root. `shipped` contains the names of the gates that ship.
    """
    subjects = {subject.family.name: subject for subject in run.subjects}
    root = run.options.test_root or run.options.rootdir
    own = {
        gate: root / path
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


def command(run: Run, subject: Subject, gate: str, test: str, files: Mapping[str, Path]) -> str:
    """Return the command that runs this test of this gate again from the project's root.

    `files` are those of gates that do not ship: the file is named, because no marker selects them.
    """
    words = _words(run, subject, gate, run.options.rootdir, files.get(gate))
    if names := [entry for entry in NAME.findall(test) if entry.lower() not in OPERATORS]:
        words += ["-k", " and ".join(names)]
    return shlex.join(words)


def recording(run: Run, subject: Subject, gate: str, update: str, file: Path | None = None) -> str:
    """Return the command that records the golden of a gate.

    It works where pytest was called and in the project's root. `update` is the field of the option
    that records, `file` that of a gate that does not ship.
    """
    alone = dataclasses.replace(run.options, against=None)
    words = _words(dataclasses.replace(run, options=alone), subject, gate, base(run), file)
    return shlex.join([*words, spelling.name(run.options, update)])


def base(run: Run) -> Path | None:
    """Return the folder that a relative path of a message starts from; None for absolute paths.

    Messages are read in the terminal, where pytest was called, and in the report.
    """
    options = run.options
    return options.rootdir if options.invocation_dir == options.rootdir else None


def _words(
    run: Run, subject: Subject, gate: str, base: Path | None, file: Path | None
) -> list[str]:
    """Return the words that run a gate again, with paths relative to `base`."""
    options = _options_for(run, subject, base)
    words = ["pytest", *spelling.repeated(options, gate)]
    if projects.find(options.rootdir) != options.rootdir:
        words.append(f"--rootdir={seen_from(base, options.rootdir)}")
    return [*words, *([str(seen_from(base, file))] if file else ["-m", gate])]


def seen_from(base: Path | None, path: Path) -> Path:
    """Return a path as written in a folder: absolute if it is not below that folder."""
    return path.relative_to(base) if base and path.is_relative_to(base) else path


def _options_for(run: Run, subject: Subject, base: Path | None) -> Options:
    """Return the options of a run that judges one family alone, as this run judged it."""
    url, trace = run.lane.base_url if run.options.base_url else None, run.options.trace
    return dataclasses.replace(
        run.options,
        models=(subject.family.name,),
        base_url=url,
        lane=None if url else _lane(run, base),
        checkpoint=_checkpoint(run, subject, base),
        trace=seen_from(base, trace) if trace else None,
    )


def _lane(run: Run, base: Path | None) -> str | None:
    """Return the name of the lane: its file if it had one; None if an incident brought it."""
    file = run.lane.file
    if file.name == LANE:
        return None
    by_file = (run.options.lane or "").endswith(SUFFIX)
    return str(seen_from(base, file)) if by_file else run.lane.name


def _checkpoint(run: Run, subject: Subject, base: Path | None) -> str | None:
    """Return the name of the weights; None if the lane or the server names them."""
    name, listed = run.options.checkpoint, subject.family.checkpoints
    if not name and not subject.why:
        return None
    if not name:  # the weights were named in place of the family, or are an incident's
        name = subject.checkpoint.source
        if subject.checkpoint.name in [entry.name for entry in listed]:
            return subject.checkpoint.name
    if name in [entry.name for entry in listed]:
        return name
    folder = run.options.invocation_dir / Path(name).expanduser()
    if not folder.is_dir():
        return name
    path = seen_from(base, folder.resolve())
    return str(path) if path.is_absolute() else f"./{path}"


def replaying(run: Run, place: str, file: Path | None = None, base: Path | None = None) -> str:
    """Return the command that sends the incident at `place` again, to the server it came from.

    `place` is quoted for a shell, `file` is that of a gate that does not ship, and `base` the
    folder in which the command is typed.
    """
    options = run.options
    words = ["pytest", spelling.name(options, "repro")]
    more = []
    if options.base_url:
        more = [*spelling.typed(options, "base_url"), *spelling.typed(options, "api_key_env")]
    if file:
        more.append(str(seen_from(base, file)))
    return " ".join([*words, place, *map(shlex.quote, more)])


def of_incident(run: Run, item: pytest.Item, folder: Path) -> str:
    """Return the command of a test's incident that is to be written into `folder`.

    It is typed in the project's root and has no path of this machine: incidents are passed on.
    """
    from pytest_vllm_gates.incidents import write as incidents_write  # noqa: PLC0415

    root, file = run.options.rootdir, own_file(item)
    if file and not file.is_relative_to(root):
        file = Path(file.name)
    return replaying(run, incidents_write.place(folder, root), file, root)


def own_file(item: pytest.Item) -> Path | None:
    """Return the file of a test's gate, None for a gate that ships."""
    return None if item.path in verdict_gates.gate_files().values() else item.path


def from_root(run: Run, typed: Iterable[str]) -> list[str]:
    """Return commands for the project's root, from those for the folder where pytest was called."""
    options = run.options
    if options.invocation_dir == options.rootdir:
        return list(typed)
    folder = shlex.quote(str(seen_from(options.rootdir, options.invocation_dir)))
    return [f"(cd {folder} && {words})" for words in typed]


def following(verdict: Verdict, config: pytest.Config, run: Run) -> tuple[str, ...]:
    """Return the commands that would turn HOLD into PROMOTE.

    None for an incident that is sent again, and none for the other lane of `--against`: the user
    did not start that run, and it is not to promote.
    """
    if run.options.repro or goldens.of_the_other_lane():
        return ()
    return next_steps.commands(verdict, _ran(config, run))


def _ran(config: pytest.Config, run: Run) -> RunSummary:
    named = [entry for entry in config.option.file_or_dir if str(verdict_gates.GATES) in entry]
    arguments = [str(argument) for argument in config.invocation_params.args]
    return RunSummary(
        arguments=promoting(
            [argument for argument in arguments if argument not in named], run.options
        ),
        families={subject.family.name: _judged(subject, run) for subject in run.subjects},
        gates=frozenset(verdict_gates.gate_files()),
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
        # If the family was found from its weights, they are what the user named.
        model=checkpoint.source if subject.why else family.name,
        log=str(log) if log else None,
        preflight=None
        if lane.base_url
        else report_checks.preflight_command(family, checkpoint, lane.name),
    )
