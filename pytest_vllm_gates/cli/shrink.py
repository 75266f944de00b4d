"""`vllm-gates shrink`: shrinks an incident to the least that still reproduces."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents.compare import ReplayOutcome
from pytest_vllm_gates.incidents.read import read
from pytest_vllm_gates.incidents.shrink import Shrinker, shrink

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_vllm_gates.incidents.shrink import RemovablePart

TRIES = 200
DESCRIPTION = """leave out of an incident the requests, turns, tools and options without
which it still happens. Each try is a replay (pytest --repro): name a server that runs, or every try
boots one. What is left becomes an incident beside the old one, which stays as it is."""


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Give the command its arguments."""
    parser = commands.add_parser(
        "shrink", help="the least of an incident that still happens", description=DESCRIPTION
    )
    parser.add_argument("incident_folder", type=Path, metavar="INCIDENT")
    parser.add_argument("--base-url", metavar="URL", help="as pytest takes it")
    parser.add_argument("--lane", help="as pytest takes it")
    parser.add_argument("--checkpoint", help="as pytest takes it")
    parser.add_argument("--api-key-env", metavar="NAME", help="as pytest takes it")
    parser.add_argument(
        "--times", type=int, default=1, metavar="N", help="how often each try may happen or not"
    )
    parser.add_argument(
        "--tries", type=int, default=TRIES, metavar="N", help=f"at most so many; default: {TRIES}"
    )
    parser.add_argument("paths", nargs="*", help="gates of your own, as pytest takes them")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the smaller incident; 1 where there is none, for it does not happen here at all."""
    incident_folder = read(options.incident_folder)
    trial = _Trials(options)
    whittler = Shrinker(incident_folder)
    answer = trial.answer(incident_folder.folder)
    if answer != ReplayOutcome.REPRODUCED:
        print(
            f"{incident_folder.folder}: {answer} here, "
            "so no smaller incident can be compared with it"
        )
        return 1
    left_out: list[RemovablePart] = []
    for kind, parts in whittler.parts():
        gone = {part.of for part in left_out if part.kind == "request"}
        remaining_parts = [part for part in parts if kind == "request" or part.of not in gone]
        left_out += _without(whittler, trial, remaining_parts, left_out)
    if not left_out:
        print(f"nothing can be left out of {incident_folder.folder} ({trial.made} tries)")
        return 0
    path = whittler.write(incident_folder.folder.parent, f"{incident_folder.name}-shrunk", left_out)
    print(f"{trial.made} tries; left out: {', '.join(map(str, left_out))}")
    print(f"{path}\nsend it again: pytest --repro {path}")
    return 0


def _without(
    whittler: Shrinker,
    trial: _Trials,
    parts: Sequence[RemovablePart],
    left_out: Sequence[RemovablePart],
) -> list[RemovablePart]:
    """Return which of these parts may be left out besides others."""

    def shows(needed: Sequence[RemovablePart]) -> bool:
        if trial.made >= trial.most or (parts[0].kind == "request" and not needed):
            return False
        gone = [part for part in parts if part not in needed]
        with tempfile.TemporaryDirectory(prefix="vllm-gates-shrink-") as folder:
            smaller = whittler.write(Path(folder), "candidate", [*left_out, *gone])
            return trial.answer(smaller) == ReplayOutcome.REPRODUCED

    needed = shrink(parts, shows) if parts else ()
    return [part for part in parts if part not in needed]


class _Trials:
    """Replays of incidents, each in a pytest of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.made = 0
        self.most = options.tries
        self._paths = options.paths
        # The long names: another plugin of the project may have taken the short ones.
        self._options = ["--gates-times", str(options.times)]
        for name in ("base_url", "lane", "checkpoint", "api_key_env"):
            if value := getattr(options, name):
                self._options += [f"--gates-{name.replace('_', '-')}", value]

    def answer(self, incident_folder: Path) -> str:
        """Return what a replay comes to; raises `UserError` where there was none."""
        self.made += 1
        with tempfile.TemporaryDirectory(prefix="vllm-gates-shrink-") as report:
            command = [
                sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                "--gates-repro", str(incident_folder), "--gates-report", report,
                *self._options, *self._paths,
            ]  # fmt: skip
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
            )
            verdict = Path(report) / "verdict.json"
            if not verdict.is_file():
                raise UserError(
                    f"the replay came to nothing (exit status {done.returncode}):\n"
                    f"{(done.stderr or done.stdout)[-2000:].strip()}"
                )
            replay = bounded_read.json(verdict)["repro"]
        answer = str(replay["answer"]) if replay else str(ReplayOutcome.DIFFERENT)
        print(f"try {self.made}: {answer}", flush=True)
        return answer
