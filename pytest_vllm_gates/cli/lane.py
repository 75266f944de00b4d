"""`vllm-gates lane`: lists, compares, makes, serves and freezes lanes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import lane as lanes, project as projects
from pytest_vllm_gates.checkpoints import named
from pytest_vllm_gates.cli import lane_new
from pytest_vllm_gates.environment import build as environment_build, environment
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import write_together
from pytest_vllm_gates.lanes import (
    commands as lane_commands,
    describe as lanes_describe,
    freeze,
    running,
)
from pytest_vllm_gates.lanes.diff import differences
from pytest_vllm_gates.machine import inspect as machine_inspect
from pytest_vllm_gates.preflight import gather
from pytest_vllm_gates.report import environment as report
from pytest_vllm_gates.report.progress import Progress

if TYPE_CHECKING:
    import argparse

    from pytest_vllm_gates.catalog.lane import Lane

LIST = "list every lane: its form, whether its environment is made, its versions"
DIFF = "print the differences between two lanes, axis by axis, without booting"
MAKE = "make a lane's environment, and print the path of its Python"
COMMAND = "print the shell commands that serve a model from a lane as the gates do"
FREEZE = """record a serving environment as a lane of this project: lanes/NAME.toml, a lock of
every package with checksums, and an inventory; all of them or none"""


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the sub-commands and their arguments."""
    summary = "list, compare, make, serve and freeze lanes"
    actions = commands.add_parser("lane", help=summary, description=summary).add_subparsers(
        required=True, metavar="WHAT"
    )
    list_parser = actions.add_parser("list", help=LIST, description=LIST)
    list_parser.set_defaults(run=run_list)
    diff_parser = actions.add_parser("diff", help=DIFF, description=DIFF)
    diff_parser.add_argument("ours", metavar="A")
    diff_parser.add_argument("theirs", metavar="B")
    diff_parser.add_argument(
        "--model", action="append", default=[], metavar="NAME",
        help="also compare flags, templates, tokenizers and checkpoints of this family, folder or "
        "Hub id (may be repeated)",
    )  # fmt: skip
    diff_parser.set_defaults(run=run_diff)
    make_parser = actions.add_parser("make", help=MAKE, description=MAKE)
    make_parser.add_argument("name", metavar="NAME")
    make_parser.set_defaults(run=run_make)
    command_parser = actions.add_parser("command", help=COMMAND, description=COMMAND)
    command_parser.add_argument("name", metavar="NAME")
    command_parser.add_argument(
        "--model", action="append", required=True, metavar="NAME",
        help="a family, folder or Hub id (may be repeated)",
    )  # fmt: skip
    command_parser.add_argument(
        "--port", type=int, default=lane_commands.PORT, help="default: %(default)s"
    )
    command_parser.set_defaults(run=run_command)
    lane_new.declare(actions)
    freeze_parser = actions.add_parser("freeze", help=FREEZE, description=FREEZE)
    freeze_parser.add_argument("name", metavar="NAME", help="the name of the lane to write")
    freeze_parser.add_argument(
        "--from", dest="source", metavar="LANE",
        help="copy flags, variables, overlay and checkpoint from this lane, and its interpreter "
        "without --python (default: the lane NAME, if it exists)",
    )  # fmt: skip
    freeze_parser.add_argument(
        "--python", metavar="PATH", help="the interpreter whose packages to record"
    )
    freeze_parser.add_argument(
        "--env", action="append", default=[], metavar="VAR",
        help="a variable for the lane: VAR with its present value, or VAR=VALUE (may be repeated)",
    )  # fmt: skip
    freeze_parser.add_argument(
        "--keep-python",
        action="store_true",
        help="let the lane name the interpreter, without a lock",
    )
    freeze_parser.add_argument(
        "--force", action="store_true", help="overwrite the lane of that name"
    )
    freeze_parser.set_defaults(run=run_freeze)
    for parser in (list_parser, diff_parser, make_parser, freeze_parser):
        parser.add_argument("--json", action="store_true", help="as JSON")


def run_list(options: argparse.Namespace) -> int:
    """Print every lane; for a faulty file, print its fault."""
    project = projects.current()
    default = named.default(machine_inspect.inspect())
    rows = [_row(name, project, default) for name in lanes.files(project)]
    if options.json:
        print(json.dumps([report.lane_document(row) for row in rows], indent=2, ensure_ascii=False))
    else:
        print("\n".join(report.lane_lines(rows)))
    return 0


def _row(name: str, project: Path, default: str) -> report.LaneRow:
    default_here = name == default
    try:
        lane = lanes.load(name, project)
        lane_environment = environment.at_hand(lane, cache=files.default_cache())
    except UserError as error:
        return report.LaneRow(name, "", "", default_here, problem=str(error).splitlines()[0])
    problem = _tampered(lane, lane_environment)
    return report.LaneRow(
        name,
        lane.form,
        lane.title,
        default_here,
        lane_environment.python,
        lane_environment.versions,
        problem,
    )


def run_diff(options: argparse.Namespace) -> int:
    """Print the differences; 1 if a frozen lane differs from what was frozen."""
    project, machine = projects.current(), machine_inspect.inspect()
    sides, problems = [], []
    for name in (options.ours, options.theirs):
        lane = lanes.load(name, project)
        lane_environment = environment.at_hand(lane, cache=files.default_cache())
        subjects = [named.served(model, None, lane, project)[:2] for model in options.model]
        sides.append(
            lanes_describe.of(
                lane,
                lane_environment,
                machine,
                subjects,
                overlay=lane.overlay_path,
                server_version=running.version(lane),
            )
        )
        problems.append(_tampered(lane, lane_environment))
    diff = differences(*sides)
    if options.json:
        print(json.dumps(report.diff_document(diff), indent=2, ensure_ascii=False))
    else:
        print("\n".join(report.diff_lines(diff)))
    for problem in filter(None, problems):
        print(f"warning: {problem}", file=sys.stderr)
    return int(any(problems))


def run_make(options: argparse.Namespace) -> int:
    """Make a lane's environment, and print only its interpreter, for use in a shell."""
    lane = lanes.load(options.name, projects.current())
    made = environment.prepare(lane, cache=files.default_cache(), progress=_progress())
    problem = _tampered(lane, made)
    if options.json:
        row = report.LaneRow(
            lane.name, lane.form, lane.title, False, made.python, made.versions, problem
        )
        print(json.dumps({**report.lane_document(row), "made_now": made.made}, indent=2))
    elif made.python is None:
        print(
            f"lane {lane.name}: no environment to make, its server runs elsewhere", file=sys.stderr
        )
    else:
        print(made.python)
    if problem:
        print(f"error: {problem}", file=sys.stderr)
    return int(bool(problem))


def run_command(options: argparse.Namespace) -> int:
    """Print the commands; the caller sets the server's key in `VLLM_API_KEY`."""
    project = projects.current()
    lane = lanes.load(options.name, project)
    subjects = [named.served(model, None, lane, project)[:2] for model in options.model]
    overlay = lane.overlay_path
    print("\n".join(lane_commands.commands(lane, subjects, overlay=overlay, port=options.port)))
    return 0


def run_freeze(options: argparse.Namespace) -> int:
    """Record an environment as a lane; print what it contains and what it cannot contain."""
    project = projects.current()
    known = lanes.files(project)
    file = freeze.target(options.name, project, known, force=options.force)
    source = options.source or (options.name if options.name in known else None)
    lane = lanes.load(source, project) if source else None
    serving = _serving(options, file, lane)
    say = _progress()
    frozen_lane = freeze.compose(
        file,
        serving,
        source=lane,
        variables=options.env,
        keep_python=options.keep_python,
        inventory={
            "machine": report.machine_document(machine_inspect.inspect()),
            "bundle": report.bundle_document(gather.of(serving)),
        },
        say=say,
    )
    write_together(frozen_lane.files)
    lanes.load(file.stem, project)
    summary = _summary(frozen_lane, project)
    if options.json:
        print(json.dumps({"lane": file.stem, **summary}, indent=2, ensure_ascii=False))
        return 0
    print(
        f"lane {file.stem}: {frozen_lane.packages} packages, {frozen_lane.checked} with checksums"
    )
    for path in summary["files"]:
        print(f"  written: {path}")
    for note in frozen_lane.notes:
        print(f"  {note}")
    print(f"try it: vllm-gates lane make {file.stem}")
    return 0


def _summary(frozen_lane: freeze.FrozenLane, project: Path) -> dict[str, Any]:
    return {
        "packages": frozen_lane.packages,
        "with_checksums": frozen_lane.checked,
        "files": [str(path.relative_to(project)) for path in frozen_lane.files],
        "notes": list(frozen_lane.notes),
    }


def _serving(options: argparse.Namespace, file: Path, lane: Lane | None) -> environment.Environment:
    """Return the environment to freeze: the named interpreter, else the lane's."""
    cache = files.default_cache()
    if options.python:
        python = str(Path(options.python).expanduser().absolute())
        named_lane = lanes.Lane(
            name=file.stem, file=Path("--python"), title=file.stem, python=python
        )
        return environment.prepare(named_lane, cache=cache, progress=lambda _: None)
    if lane is None:
        raise UserError(
            f"lane {file.stem!r} needs an environment to record\n"
            f"name its interpreter: vllm-gates lane freeze {file.stem} --python PATH\n"
            f"or an existing lane: vllm-gates lane freeze {file.stem} --from LANE"
        )
    lane_environment = environment.at_hand(lane, cache=cache)
    if lane_environment.python is None:
        hint = (
            f"make it: vllm-gates lane make {lane.name}"
            if lane.form == "lock"
            else "freeze it where it runs, with --python"
        )
        raise UserError(f"lane {lane.name} has no environment here\n{hint}")
    return lane_environment


def _tampered(lane: Lane, lane_environment: environment.Environment) -> str:
    """Return the fault of a frozen lane's environment, or ''."""
    changed = freeze.tampered(lane, lane_environment.folders)
    if not changed:
        return ""
    folder = (
        environment_build.existing_environment(lane, files.default_cache())
        if lane.form == "lock"
        else None
    )
    fix = f"; remove it, and it is made again: rm -r {folder}" if folder else ""
    listed = ", ".join(changed)
    return f"lane {lane.name}: installed builds differ from the frozen ones: {listed}{fix}"


def _progress() -> Progress:
    def write(line: str) -> None:
        sys.stderr.write(line)

    return Progress(write, terminal=sys.stderr.isatty())
