"""The output of a run: first what is judged, at its end a line a gate and the verdict."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from typing import TYPE_CHECKING

from pytest_vllm_gates.bounded.characters import shown
from pytest_vllm_gates.features.catalog import BOOT_S
from pytest_vllm_gates.lifecycle.types import BOOTS
from pytest_vllm_gates.options import spelling
from pytest_vllm_gates.report import (
    environment as bundle_report,
    incidents as incidents_report,
    terminal,
)
from pytest_vllm_gates.server.kept.record import span
from pytest_vllm_gates.session import golden_folders, unwritten
from pytest_vllm_gates.session.finish import incidents

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

    from pytest_vllm_gates.session.finish import End
    from pytest_vllm_gates.session.run import Run

NUMBER = re.compile(r"\d+(?:\.\d+)?")


def opening(run: Run) -> list[str]:
    """Return the lines at a run's beginning: what is judged, where, and why there."""
    lane = run.lane
    options = run.options
    lines = [f"vllm gates: lane {lane.name} ({run.lane_why}): {lane.title}"]
    lines += [f"vllm gates: {claim}" for claim in options.claimed]
    lines += [
        f"vllm gates: {subject.family.name}, checkpoint {subject.checkpoint.name}{subject.why}"
        for subject in run.subjects
    ]
    if run.overlay:
        lines += [f"vllm gates: overlay {repair.name}: {repair.summary}" for repair in run.repairs]
    elif lane.overlay_path:
        left_out = spelling.name(options, "overlay")
        lines.append(f"vllm gates: the lane's overlay is left out ({left_out})")
    if combinations := run.combinations:
        more = {1: "one boot", 2: "two boots"}
        lines += [
            f"vllm gates: features {one.summary}, {more[one.boots]} more" for one in combinations
        ]
        minutes = -(-sum(one.boots for one in combinations) * BOOT_S // 60)
        lines.append(f"vllm gates: features take about {minutes} min on an idle machine")
    if options.lifecycle and lane.base_url is None:
        boots = sum(BOOTS.values()) * len(run.subjects)
        minutes = -(-boots * BOOT_S // 60)
        lines.append(
            f"vllm gates: lifecycle, up to {boots} boots more, about {minutes} min on a miniature "
            "and an idle machine"
        )
    if repro := run.replays.repro:
        lines += [
            f"vllm gates: replaying {repro.folder}",
            *(f"vllm gates: {note}" for note in run.replays.notes),
        ]
    if options.keep_server_s:
        idle, keep = span(options.keep_server_s), spelling.name(options, "keep_server_s")
        lines.append(
            f"vllm gates: nothing is booted, so nothing is kept ({keep})"
            if lane.base_url
            else f"vllm gates: a server is left up until it is idle for {idle} ({keep})"
        )
    lines += [
        f"vllm gates: overlay without {name} ({spelling.name(options, 'without_repairs')})"
        for name in options.without_repairs
    ]
    return lines


def show(terminalreporter: pytest.TerminalReporter, run: Run, ending: End) -> None:
    """Show one line a gate, then the verdict, then what was written."""
    names = ", ".join(subject.family.name for subject in run.subjects)
    terminalreporter.section(f"vllm gates: {names} on lane {run.lane.name}")
    folder = terminalreporter.config.invocation_params.dir
    for colour, line in _last_words(run, ending, folder, bends=bool(terminalreporter.isatty)):
        terminalreporter.write_line(shown(line), **({colour: True} if colour else {}))


def fold_tries(terminalreporter: pytest.TerminalReporter | None, run: Run) -> None:
    """Have pytest show a failure once if several tries of --repro share it except for numbers."""
    if terminalreporter is None or run.replays.times < 2:  # noqa: PLR2004
        return
    first_by_text: dict[str, pytest.TestReport] = {}
    tries: Counter[str] = Counter()
    for report in terminalreporter.stats.get("failed", ()):
        text = NUMBER.sub("#", report.longreprtext)
        tries[text] += 1
        if first_by_text.setdefault(text, report) is not report:
            # As pytest marks what its debugger has shown.
            report._pdbshown = True  # noqa: SLF001
    for text, report in first_by_text.items():
        if tries[text] > 1:
            report.sections.append(("Tries", f"{tries[text]} times"))


def _last_words(run: Run, ending: End, folder: Path, *, bends: bool) -> Iterator[tuple[str, str]]:
    """Yield the lines of the end, as (colour, text); `bends` is for a person's terminal."""
    if ending.bundle:
        yield from (("", line) for line in (*bundle_report.diff_lines(ending.bundle), ""))
    yield from terminal.lines(ending.verdict, verbose=run.options.verbose, bends=bends)
    if ending.against:
        axes = ending.bundle.axes if ending.bundle else ()
        yield "", f"  {terminal.side_by_side(ending.against, axes)}"
    if ending.rollback:
        commands = ending.rollback["command"].splitlines()
        if folder != run.options.rootdir:
            commands.insert(0, f"cd {shlex.quote(str(run.options.rootdir))}")
        yield "", f"  go back to lane {ending.rollback['lane']}:"
        yield from (("", f"    {line}") for line in commands)
    yield from incidents_report.left_lines(incidents(run, folder, folder))
    if replayed := run.replays.document():
        yield from incidents_report.replay_lines(replayed)
    yield from (("", f"  recorded ({kind}): {path}") for path, kind in sorted(run.recorded.items()))
    yield from (("", f"  recorded (baseline): {path}") for path in run.baselines)
    yield from (("", f"  {line}") for line in unwritten.lines(run))
    for subject in run.subjects:
        old_goldens = golden_folders.notes(run.options.rootdir, folder, subject)
        yield from (("", f"  {line}") for line in old_goldens)
    yield from (("", f"  unused golden (delete it?): {path}") for path in _unused_goldens(run))
    yield from (("", line) for line in ending.published)


def _unused_goldens(run: Run) -> list[Path]:
    """Return the project's goldens that no test of a whole run used."""
    if run.left_out or run.replays.repro or run.interrupted or run.collected - run.finished:
        return []
    root = run.options.rootdir / golden_folders.FOLDER
    return sorted(
        path
        for subject in run.subjects
        for path in golden_folders.folder(root, subject).glob("*.txt")
        if path not in run.goldens_used
    )
