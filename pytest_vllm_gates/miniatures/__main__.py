"""`python -m pytest_vllm_gates.miniatures`: list, verify and build miniatures."""

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pytest_vllm_gates.checkpoints import adapters, draft_heads, miniatures
from pytest_vllm_gates.checkpoints.miniatures import HERE, RECIPES, MiniatureError, names
from pytest_vllm_gates.miniatures.recipe import load

PROG = "python -m pytest_vllm_gates.miniatures"
PROGRESS_EVERY_S = 15.0


LANE = "cpu"


def lane_python() -> tuple[str, str]:
    """Return the CPU lane's interpreter, which has torch, and its overlay folder.

    The lane's environment is made if it is missing. Raises `MiniatureError` when it cannot be.
    """
    # The interpreter that builds has torch and not what making an environment needs.
    from pytest_vllm_gates import files  # noqa: PLC0415
    from pytest_vllm_gates.catalog import lane as lanes  # noqa: PLC0415
    from pytest_vllm_gates.environment import environment  # noqa: PLC0415
    from pytest_vllm_gates.errors import UserError  # noqa: PLC0415

    lane = lanes.load(LANE, Path.cwd())
    try:
        prepared = environment.prepare(lane, cache=files.default_cache(), progress=BuildProgress())
    except UserError as error:
        raise MiniatureError(
            f"this interpreter has no torch, and {error}\n"
            f"or name one that has it: {PROG} build NAME --python PATH"
        ) from error
    return str(prepared.python), str(lane.overlay_path or "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options) or 0)
    except MiniatureError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; nothing was replaced", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROG, description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="train one and write its checkpoint")
    build.add_argument("name", metavar="NAME")
    build.add_argument("--output", type=Path, metavar="DIR", help="default: the shipped place")
    build.add_argument("--seed", type=int, metavar="N")
    build.add_argument(
        "--state",
        type=Path,
        metavar="FILE",
        help="keep the training's state there, and go on from it",
    )
    build.add_argument("--python", metavar="PATH", help="an interpreter with torch")
    build.set_defaults(run=_build)
    lora = commands.add_parser("adapters", help="train one's LoRA adapters and write them")
    lora.add_argument("name", metavar="NAME")
    lora.add_argument("--output", type=Path, metavar="DIR", help="default: the shipped place")
    lora.add_argument("--seed", type=int, metavar="N")
    lora.add_argument("--python", metavar="PATH", help="an interpreter with torch")
    lora.set_defaults(run=_adapters)
    head = commands.add_parser("draft-head", help="train the head that drafts for one")
    head.add_argument("name", metavar="NAME")
    head.add_argument("--output", type=Path, metavar="DIR", help="default: the shipped place")
    head.add_argument("--seed", type=int, metavar="N")
    head.add_argument("--python", metavar="PATH", help="an interpreter with torch")
    head.set_defaults(run=_draft_head)
    list_command = commands.add_parser("list", help="name them all")
    list_command.set_defaults(run=_list)
    verify = commands.add_parser("verify", help="check the shipped files against their locks")
    verify.add_argument("names", nargs="*", metavar="NAME")
    verify.set_defaults(run=_verify)
    return parser


def _list(_: argparse.Namespace) -> None:
    for name in names():
        print(f"{name:18} {', '.join(load(name).config['architectures'])}")


def _verify(options: argparse.Namespace) -> int:
    failed = 0
    for name in options.names or names():
        try:
            print(f"{name}: whole, {miniatures.path(name)}")
            for adapter, folder in adapters.paths(name).items():
                print(f"{name}: adapter {adapter}: whole, {folder}")
            if head := draft_heads.path(name):
                print(f"{name}: draft head: whole, {head}")
        except MiniatureError as error:
            failed = 1
            print(f"error: {error}", file=sys.stderr)
    return failed


def _build(options: argparse.Namespace) -> None:
    load(options.name)
    if options.python or importlib.util.find_spec("torch") is None:
        _elsewhere("build", options)
    from pytest_vllm_gates.miniatures.build import build  # noqa: PLC0415

    output = options.output or miniatures.CHECKPOINTS / options.name
    build(options.name, output, seed=options.seed, say=_say, state=options.state)
    if sys.stderr.isatty():
        print(file=sys.stderr)


def _adapters(options: argparse.Namespace) -> None:
    lacks = "no adapters\ndescribe them in {}" if not adapters.recipes(options.name) else ""
    _check_addition("adapters", options, lacks, adapters.RECIPE)
    from pytest_vllm_gates.miniatures.build_adapters import build  # noqa: PLC0415

    output = options.output or adapters.FOLDER / options.name
    build(options.name, output, seed=options.seed or 0, say=_say)
    if sys.stderr.isatty():
        print(file=sys.stderr)


def _draft_head(options: argparse.Namespace) -> None:
    lacks = "no draft head\ndescribe it in {}" if not draft_heads.recipe(options.name) else ""
    _check_addition("draft-head", options, lacks, draft_heads.RECIPE)
    from pytest_vllm_gates.miniatures.build_draft_head import build  # noqa: PLC0415

    output = options.output or draft_heads.FOLDER / options.name
    build(options.name, output, seed=options.seed or 0, say=_say)


def _check_addition(
    command_name: str, options: argparse.Namespace, lacks: str, recipe_name: str
) -> None:
    """Raise where a miniature lacks the addition; go on in an interpreter that has torch."""
    load(options.name)
    if lacks:
        recipe_file = RECIPES / options.name / recipe_name
        raise MiniatureError(f"miniature {options.name} has {lacks.format(recipe_file)}")
    if options.python or importlib.util.find_spec("torch") is None:
        _elsewhere(command_name, options)


def _elsewhere(command_name: str, options: argparse.Namespace) -> None:
    """Replace this process by the same command in an interpreter that has torch."""
    python, overlay = (options.python, "") if options.python else lane_python()
    command = [python, "-m", "pytest_vllm_gates.miniatures", command_name, options.name]
    if options.output:
        command += ["--output", str(options.output.absolute())]
    if getattr(options, "state", None):
        command += ["--state", str(options.state.absolute())]
    if options.seed is not None:
        command += ["--seed", str(options.seed)]
    paths = filter(None, (overlay, str(HERE.parent.parent)))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    try:
        os.execve(python, command, env)  # noqa: S606
    except OSError as error:
        raise MiniatureError(f"{python}: {error.strerror}\n{PROG} build --help") from None


class BuildProgress:
    """Shows the progress of making the environment, no more often than a person reads."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def __call__(self, line: str) -> None:
        """Show a line, unless another was shown a moment ago."""
        if time.monotonic() - self._last >= PROGRESS_EVERY_S:
            self._last = time.monotonic()
            _say(line)


def _say(line: str) -> None:
    """Show progress: one line that changes on a terminal, plain lines elsewhere."""
    if sys.stderr.isatty() and line.startswith("epoch"):
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
    elif sys.stderr.isatty():
        print(f"\r\x1b[K{line}", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
