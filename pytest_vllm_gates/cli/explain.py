"""`vllm-gates explain`: finds the cause of a failure in a server's log, and its fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog import project as projects
from pytest_vllm_gates.cli import explain_context
from pytest_vllm_gates.diagnosis import explain, signature
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.server import log
from pytest_vllm_gates.server.failure import LogOutcome

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pytest_vllm_gates.server.failure import Explanation

DESCRIPTION = """Print what failed, why, and the next step, from logs of any origin: a file (plain,
gzip, bzip2, xz, UTF-16), a folder of them, or - for the standard input (docker logs, kubectl logs,
journalctl). In a log of several containers, each container is explained separately. Exits with 0 if
the failure has a name or the log shows no failure; with 1 for a failure without a signature, and
for a log that is empty or ends while the server loads; with 2 for a file that is not a log."""
MOST_FILES = 500


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser(
        "explain", help="find the cause of a failure in a server's log", description=DESCRIPTION
    )
    parser.add_argument("log", metavar="LOG", help="a file, a folder, or - for the standard input")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument(
        "--exit-status", type=int, metavar="N", help="the server's exit status, such as -9 or 137"
    )
    parser.add_argument(
        "--here", action="store_true", help="the server ran on this machine: use its facts"
    )
    parser.add_argument("--lane", help="the server ran on this machine, from this lane")
    parser.add_argument(
        "--context", action="append", default=[], metavar="LANE|FILE",
        help="facts about the server: a lane, an inventory (`vllm-gates inventory --json`) of its"
        " machine, the model's config.json, or the config of `vllm serve --config` (may be"
        " repeated)",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the explanation of the log; the exit status is as described."""
    project = projects.current()
    path = Path(options.log)
    classes = signature.load_all(project)
    situation = explain_context.situation_of(
        options.context, options.lane, here=options.here, project=project
    )
    explained: dict[str, Explanation] = {}
    refused: dict[str, str] = {}
    for name, file in _files(path):
        try:
            parts = explain.explain_parts(log.blocks(file), classes, options.exit_status, situation)
        except OSError as error:
            raise UserError(f"{file}: cannot be read: {error.strerror}") from error
        except UserError as error:
            if not path.is_dir():
                raise
            refused[name] = str(error)
            continue
        for part, explanation in parts.items():
            explained[": ".join(filter(None, (name, part)))] = explanation
    if options.json:
        print(json.dumps(_document(explained, refused), indent=2, ensure_ascii=False))
    else:
        print("\n".join(_lines(explained, refused)))
    if refused:
        return 2
    return int(any(each.unknown or each.untold for each in explained.values()))


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files to explain, with their names inside a folder."""
    if not path.is_dir():
        yield "", path
        return
    files = sorted(file for file in path.rglob("*") if file.is_file())
    files = [file for file in files if not file.name.startswith(".")]
    if not files:
        raise UserError(f"{path}: this folder has no file, so no log")
    if len(files) > MOST_FILES:
        raise UserError(
            f"{path}: has {len(files)} files, and at most {MOST_FILES} are explained at "
            "once: name a folder inside it"
        )
    for file in files:
        yield str(file.relative_to(path)), file


def _document(explained: dict[str, Explanation], refused: dict[str, str]) -> dict[str, object]:
    if explained.keys() == {""} and not refused:
        return explained[""].document()
    return {
        "parts": {name: each.document() for name, each in explained.items()},
        "refused": refused,
    }


def _lines(explained: dict[str, Explanation], refused: dict[str, str]) -> list[str]:
    """Return the lines of each part: failures first, parts without a result last."""
    if explained.keys() == {""} and not refused:
        return explained[""].lines()
    lines: list[str] = []
    for name, each in sorted(explained.items(), key=lambda pair: _rank(pair[1])):
        lines += [f"== {name}", *each.lines(), ""]
    lines += [f"not read: {reason}" for reason in refused.values()]
    return lines[:-1] if lines and not lines[-1] else lines


def _rank(explanation: Explanation) -> tuple[bool, bool, bool, bool]:
    return (
        explanation.outcome is not LogOutcome.FAILED,
        explanation.answer is None,
        not explanation.unknown,
        explanation.outcome is LogOutcome.UNTOLD,
    )
