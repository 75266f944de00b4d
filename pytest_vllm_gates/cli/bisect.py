"""`vllm-gates bisect`: finds the guilty change between a good lane and a bad one."""

from __future__ import annotations

import hashlib
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from pytest_vllm_gates import files
from pytest_vllm_gates.bisection import differences, index, plan as bisect_plan, report, state
from pytest_vllm_gates.bisection.judge import BisectQuestion
from pytest_vllm_gates.bisection.session import Bisection
from pytest_vllm_gates.catalog import lane as lanes, project as projects
from pytest_vllm_gates.cli import nightly_hosts
from pytest_vllm_gates.environment import build, environment, release_lock
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.lanes import describe as lanes_describe
from pytest_vllm_gates.lanes.diff import differences as bundle_differences
from pytest_vllm_gates.machine import inspect as machine_inspect
from pytest_vllm_gates.nightly import row as nightly_row, wheels
from pytest_vllm_gates.report import publish
from pytest_vllm_gates.report.progress import Progress

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.bisection.differences import LanePair
    from pytest_vllm_gates.bisection.state import Trial
    from pytest_vllm_gates.bisection.types import BisectResult
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.lanes.describe import BundleDescription
    from pytest_vllm_gates.nightly.types import CommitRow

SUMMARY = """find the change that makes a lane bad: the axis, the release along it, the flag. Each
step boots a bundle between the two lanes and runs a gate on it, or sends an incident again"""
NOISY_GATES = ("throughput", "load", "long_context")
NOISE = 0.1
"""The default rate of wrong answers of such a gate."""
NOT_FOUND, NOT_CERTAIN = 1, 3
FOLDER = Path(".vllm-gates") / "bisect"


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser("bisect", help=SUMMARY, description=SUMMARY)
    parser.add_argument("--good", required=True, metavar="LANE", help="the lane that works")
    parser.add_argument("--bad", required=True, metavar="LANE", help="the lane that fails")
    parser.add_argument(
        "--repro",
        type=Path,
        metavar="INCIDENT",
        help="a bundle is bad if it reproduces this incident",
    )
    parser.add_argument(
        "-m", dest="gates", action="append", default=[], metavar="GATE",
        help="a bundle is bad if this gate fails on it (may be repeated)",
    )  # fmt: skip
    parser.add_argument(
        "-k", dest="test", metavar="EXPRESSION", help="only these tests of the gate"
    )
    parser.add_argument("--model", metavar="NAME", help="a family, a folder or a Hub id")
    parser.add_argument(
        "--noise", type=float, metavar="RATE",
        help="the rate of wrong answers, from 0 (answers repeat) to 0.4; default: "
        f"{NOISE} for {', '.join(NOISY_GATES)}, 0 for all others",
    )  # fmt: skip
    parser.add_argument(
        "--doubt", type=float, default=0.01, metavar="P",
        help="the allowed chance of a wrong result with noisy answers (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--nightly", action="store_true",
        help="search vLLM's commits with a wheel between the two lanes instead of releases",
    )  # fmt: skip
    nightly_hosts.declare(parser, commits=True)
    parser.add_argument("--dry-run", action="store_true", help="print the plan without booting")
    parser.add_argument("--fresh", action="store_true", help="forget earlier trials")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Search; 0 for a culprit that is certain or within the odds, 3 for others, 1 without."""
    project = projects.current()
    _check(options)
    noise = _noise(options)
    question = BisectQuestion(options.model, tuple(options.gates), options.test, options.repro)
    pair = _pair(options, project)
    plan = bisect_plan.of(pair.axes, noisy=noise > 0)
    plan_lines = report.plan_lines(pair.axes, plan, pair.fixed)
    if pair.commits is not None:
        plan_lines.append(report.wheels_line(wheels.size(pair.commits.wheels.values())))
    out = sys.stderr if options.json else sys.stdout
    print("\n".join(plan_lines), file=out, flush=True)
    if options.dry_run:
        if options.json:
            document = {"plan": plan_lines, "boots": plan.boots}
            print(json.dumps(document, indent=2, ensure_ascii=False))
        return 0
    folder = project / FOLDER / _key(options, question, pair)
    kept = state.opened(folder / "state.json", _question(options, question))
    if options.fresh:
        kept.trials.clear()
    elif kept.trials:
        print(f"{len(kept.trials)} trials are known from an earlier search: {kept.file}", file=out)
    shown = _Shown(out)
    progress = Progress(_write, terminal=sys.stderr.isatty())
    bisection = Bisection(
        pair, question, kept, folder, project, files.default_cache(), progress, shown
    )
    result = bisection.find(error=noise, doubt=options.doubt)
    pinned = bisection.pinned(result)
    shown_in = _reported(options, bisection, result, shown.trials, pinned)
    if options.json:
        path = str(pinned) if pinned else None
        document = report.document(result, shown.trials, pair.axes, path)
        document["report"] = str(shown_in) if shown_in else None
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        lines = report.result_lines(result, shown.trials, pinned, options.model, pair.commits)
        print("\n".join([*lines, *([f"  report: {shown_in}"] if shown_in else [])]))
    if not result.culprits:
        return NOT_FOUND
    within_odds = noise > 0 and result.confidence >= 1 - options.doubt
    return 0 if result.certain or within_odds else NOT_CERTAIN


def _reported(
    options: argparse.Namespace,
    bisection: Bisection,
    result: BisectResult,
    trials: Sequence[Trial],
    pinned: Path | None,
) -> Path | None:
    """Add the result to the bad lane's report; return its page, or None without a report."""
    folder = bisection.bad_report
    if folder is None:
        return None
    lanes_named = str(options.good), str(options.bad)
    section = report.section(result, trials, lanes_named, str(pinned) if pinned else None)
    try:
        return publish.add_bisection(folder, section)
    except UserError as error:
        print(f"the report of the bad lane was not changed: {error}", file=sys.stderr)
        return None


def _write(text: str) -> None:
    sys.stderr.write(text)


class _Shown:
    """Prints each trial once, as it is known."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.trials: list[Trial] = []

    def __call__(self, trial: Trial) -> None:
        if trial not in self.trials:
            self.trials.append(trial)
            line = report.trial_line(len(self.trials), trial)
            print(line, file=self._out, flush=True)


def _check(options: argparse.Namespace) -> None:
    if (options.repro is None) == (not options.gates):
        raise UserError(
            "a bundle needs one test: give either --repro or -m\n"
            "try: vllm-gates bisect --good A --bad B --model NAME -m tools"
        )
    if options.gates and not options.model:
        raise UserError("-m needs a model: vllm-gates bisect … --model NAME")
    if options.repro is not None:
        options.repro = options.repro.absolute()
        if not options.repro.exists():
            raise UserError(f"{options.repro}: incident not found")
    if not options.nightly and (options.wheels or options.variant or options.commits):
        raise UserError("--wheels, --variant and --commits need --nightly: add it")
    for name, value, most in (("noise", options.noise, 0.4), ("doubt", options.doubt, 0.5)):
        if value is not None and not 0 <= value <= most:
            raise UserError(f"--{name} {value}: expected a number from 0 to {most}")


def _noise(options: argparse.Namespace) -> float:
    if options.noise is not None:
        return float(options.noise)
    return NOISE if any(gate in NOISY_GATES for gate in options.gates) else 0.0


def _pair(options: argparse.Namespace, project: Path) -> LanePair:
    """Return the two lanes with their differences; makes a missing lock."""
    machine, cache = machine_inspect.inspect(), files.default_cache()
    sides = []
    for name in (options.good, options.bad):
        lane = lanes.load(name, project)
        if lane.vllm and lane.lock_path and not lane.lock_path.is_file():
            release_lock.write(lane, lane.vllm, lane.lock_path)
        at_hand = environment.at_hand(lane, cache=cache)
        described = lanes_describe.of(lane, at_hand, machine, overlay=lane.overlay_path)
        sides.append((lane, at_hand.versions, described))
    (good, good_versions, ours), (bad, bad_versions, theirs) = sides
    urls = [build.pinned_urls(lane) if lane.form == "lock" else {} for lane in (good, bad)]
    return differences.pair(
        good,
        bad,
        (good_versions, bad_versions),
        bundle_differences(ours, theirs),
        index.releases_of,
        commits_between=partial(_commits, options, sides, urls) if options.nightly else None,
        urls=(urls[0], urls[1]),
    )


def _commits(
    options: argparse.Namespace,
    sides: Sequence[tuple[Lane, Mapping[str, str], BundleDescription]],
    urls: Sequence[Mapping[str, str]],
) -> CommitRow:
    """Return the commits of vLLM between two lanes."""
    hosts = nightly_hosts.of(options)
    references = []
    for (lane, versions, _), addresses in zip(sides, urls, strict=True):
        if wheels.PACKAGE not in versions:
            raise UserError(
                f"lane {lane.name} has no package {wheels.PACKAGE}: --nightly is for CUDA, whose "
                "wheels vLLM publishes by commit\nsearch releases: without --nightly"
            )
        references.append(
            nightly_row.reference(versions[wheels.PACKAGE], addresses.get(wheels.PACKAGE), hosts)
        )
    progress = Progress(_write, terminal=sys.stderr.isatty())
    row = nightly_row.between(references[0], references[1], hosts, progress)
    progress.done()
    return row


def _lock_digest(lane: Lane) -> str:
    data = lane.lock_path.read_bytes() if lane.lock_path else b""
    return hashlib.sha256(data + lane.file.read_bytes()).hexdigest()


def _question(options: argparse.Namespace, question: BisectQuestion) -> dict[str, Any]:
    return {"good": options.good, "bad": options.bad, "asked": question.arguments()}


def _key(options: argparse.Namespace, question: BisectQuestion, pair: LanePair) -> str:
    """Return the name of a bisection's folder, which depends on lanes and question."""
    digests = [_lock_digest(pair.good), _lock_digest(pair.bad), *question.arguments()]
    if options.nightly:
        digests += ["--nightly", options.variant or ""]
    digest = hashlib.sha256("\n".join(digests).encode()).hexdigest()[:8]
    return f"{Path(options.good).stem}..{Path(options.bad).stem}-{digest}"
