"""`vllm-gates shrink`: reduces an incident to the smallest that still happens."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents.read import read
from pytest_vllm_gates.incidents.shrink import Shrinker, shrink
from pytest_vllm_gates.incidents.types import ReplayOutcome

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.incidents.shrink import RemovablePart

TRIES = 200
KEEP_SERVER = "15m"
SHOWN_HERE = (ReplayOutcome.REPRODUCED, ReplayOutcome.NOT_MET)
"""The outcomes of a replay if the incident happens here."""
DESCRIPTION = """Remove the requests, turns, tools and options from an incident that it does not
need to happen. Each try is a replay (pytest --repro): name a running server, or pass --keep-server;
otherwise every try boots one. The rest is written as a new incident next to the old one, which is
not changed."""


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser(
        "shrink",
        help="reduce an incident to the smallest that still happens",
        description=DESCRIPTION,
    )
    parser.add_argument("incident_folder", type=Path, metavar="INCIDENT")
    parser.add_argument("--base-url", metavar="URL", help="as for pytest")
    parser.add_argument("--lane", help="as for pytest")
    parser.add_argument("--checkpoint", help="as for pytest")
    parser.add_argument("--api-key-env", metavar="NAME", help="as for pytest")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="replays of each try")
    parser.add_argument(
        "--tries", type=int, default=TRIES, metavar="N", help=f"most tries; default: {TRIES}"
    )
    parser.add_argument(
        "--keep-server", nargs="?", const=KEEP_SERVER, metavar="IDLE",
        help="reuse the first try's server for the others; it stops after this time without "
        f"requests; default: {KEEP_SERVER}",
    )  # fmt: skip
    parser.add_argument("paths", nargs="*", help="your own gates, as for pytest")
    parser.set_defaults(run=run)
    _take_paths_behind_options(parser)


def _take_paths_behind_options(parser: argparse.ArgumentParser) -> None:
    """Accept paths anywhere, as pytest does; argparse accepts them only before options."""
    parse = parser.parse_known_args

    def parse_known_args(*arguments: Any, **named: Any) -> tuple[argparse.Namespace, list[str]]:
        found, others = parse(*arguments, **named)
        found.paths = [*found.paths, *(word for word in others if not word.startswith("-"))]
        return found, [word for word in others if word.startswith("-")]

    parser.parse_known_args = parse_known_args  # type: ignore[assignment, method-assign]


def run(options: argparse.Namespace) -> int:
    """Write the smaller incident; 1 if there is none because it does not happen here."""
    incident_folder = read(options.incident_folder)
    trial = _Trials(options)
    whittler = Shrinker(incident_folder)  # before anything boots: it raises if it cannot work
    first = trial.first(incident_folder.folder)
    if first.answer not in SHOWN_HERE:
        print(
            f"{incident_folder.folder}: {first.answer} here, "
            f"so no smaller incident can be compared with it\n{first.why}"
        )
        return 1
    left_out: list[RemovablePart] = []
    for kind, parts in whittler.parts():
        gone = {part.of for part in left_out if part.kind == "request"}
        remaining_parts = [part for part in parts if kind == "request" or part.of not in gone]
        left_out += _without(whittler, trial, remaining_parts, left_out)
    if not left_out:
        print(f"nothing can be removed from {incident_folder.folder} ({trial.made} tries)")
        return 0
    path = whittler.write(incident_folder.folder.parent, f"{incident_folder.name}-shrunk", left_out)
    print(f"{trial.made} tries; removed: {', '.join(map(str, left_out))}")
    words = shlex.join(["pytest", "--repro", str(path), *trial.typed])
    print(f"{path}\nsend it again: {words}")
    return 0


def _without(
    whittler: Shrinker,
    trial: _Trials,
    parts: Sequence[RemovablePart],
    left_out: Sequence[RemovablePart],
) -> list[RemovablePart]:
    """Return the parts that may be removed in addition to others."""

    def shows(needed: Sequence[RemovablePart]) -> bool:
        if trial.made >= trial.most or (parts[0].kind == "request" and not needed):
            return False
        gone = [part for part in parts if part not in needed]
        if not whittler.possible([*left_out, *gone]):
            return False
        with tempfile.TemporaryDirectory(prefix="vllm-gates-shrink-") as folder:
            smaller = whittler.write(Path(folder), "candidate", [*left_out, *gone])
            return trial.shows_the_same(smaller)

    needed = shrink(parts, shows) if parts else ()
    return [part for part in parts if part not in needed]


class _Trials:
    """Replays of incidents, each in its own pytest."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.made = 0
        self._first: _Replay | None = None
        self.most = options.tries
        given = {
            name: getattr(options, name)
            for name in ("base_url", "lane", "checkpoint", "api_key_env")
            if getattr(options, name)
        }
        self.typed = [
            word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)
        ] + options.paths
        if options.keep_server:
            given["keep_server"] = options.keep_server
        # The long names, because another plugin of the project may own the short ones. With `=`,
        # because pytest reads a separate value as a path of tests.
        self._options = [
            f"--gates-times={options.times}",
            *(f"--gates-{name.replace('_', '-')}={value}" for name, value in given.items()),
        ]
        self._paths = options.paths

    def first(self, incident_folder: Path) -> _Replay:
        """Return the replay of the whole, which the parts' replays are compared with.

        Raises `UserError` without a replay.
        """
        self._first = replay = self._replayed(incident_folder)
        print(f"try {self.made}: {replay.answer}", flush=True)
        if replay.failed:
            raise UserError(replay.failed)
        return replay

    def shows_the_same(self, incident_folder: Path) -> bool:
        """Return whether a part shows the same failure as the whole, and no other."""
        assert self._first  # noqa: S101 - the whole was replayed before any part
        replay = self._replayed(incident_folder)
        difference = replay.difference(self._first)
        print(f"try {self.made}: {replay.answer}{difference and f', but {difference}'}", flush=True)
        return replay.answer == self._first.answer and not difference

    def _replayed(self, incident_folder: Path) -> _Replay:
        """Replay an incident; one that cannot be replayed is DIFFERENT."""
        self.made += 1
        with tempfile.TemporaryDirectory(prefix="vllm-gates-shrink-") as report:
            command = [
                sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                f"--gates-repro={incident_folder}", f"--gates-report={report}",
                *self._options, *self._paths,
            ]  # fmt: skip
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
            )
            verdict = Path(report) / "verdict.json"
            replay = bounded_read.json(verdict)["repro"] if verdict.is_file() else None
        if replay is not None:
            return _Replay.of(replay)
        return _Replay(
            str(ReplayOutcome.DIFFERENT),
            failed=f"the replay has no result (exit status {done.returncode}):\n"
            f"{(done.stderr or done.stdout)[-2000:].strip()}",
        )


@dataclass(frozen=True)
class _Replay:
    """The result of one replay."""

    answer: str
    why: str = ""
    failed: str = ""
    """Why pytest could not replay it; empty if it could."""
    statuses: frozenset[tuple[str, int | None]] = frozenset()
    """The answers' statuses, by the names of the sends."""
    unmet: frozenset[str] = frozenset()
    """The expectations of captured requests that were not met."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> _Replay:
        """Read a replay's result from its verdict.json."""
        attempts = document["attempts"]
        texts = Counter(
            f"  {': '.join(filter(None, (attempt['why'], attempt['says'])))}"
            for attempt in attempts
        )
        return cls(
            answer=str(document["answer"]),
            why="\n".join(
                f"{text} ({count} times)" if count > 1 else text for text, count in texts.items()
            ),
            statuses=frozenset(
                pair for attempt in attempts for pair in attempt.get("statuses", {}).items()
            ),
            unmet=frozenset(each for attempt in attempts for each in attempt.get("unmet", ())),
        )

    def difference(self, whole: _Replay) -> str:
        """Return the difference from the replay of the whole, or ''."""
        for name, status in sorted(self.statuses, key=str):
            others = {other for other_name, other in whole.statuses if other_name == name}
            if others and _class(status) not in map(_class, others):
                then = ", ".join(sorted(map(str, others)))
                return f"the status is {status or 'missing'}, not {then}"
        more = sorted(self.unmet - whole.unmet)
        return f"another expectation is not met: {more[0]}" if more else ""


def _class(status: int | None) -> int | None:
    """Return the hundreds of a status."""
    return None if status is None else status // 100
