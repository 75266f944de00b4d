"""`vllm-gates warmup`: measures a replica's time until it answers, by phase, cold and warm."""

from __future__ import annotations

import datetime
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import project as projects
from pytest_vllm_gates.checkpoints import named
from pytest_vllm_gates.cli import numbers
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.machine import inspect as machine_inspect
from pytest_vllm_gates.server.patience import BootLimits
from pytest_vllm_gates.warmup import record
from pytest_vllm_gates.warmup.types import COLD, WARM, WarmupTimes, changes, phase_spreads

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pytest_vllm_gates.machine.types import Machine

SUMMARY = """time boots from the start of the process to the first correct answer, by phase, with
empty caches and with filled ones, and compare them with the last recorded times"""
LIMITS = BootLimits(boot_s=1800.0, stall_s=300.0)
SHOWN = 79
BOOTS = 5


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser("warmup", help=SUMMARY, description=SUMMARY)
    parser.add_argument("--model", required=True, help="a family, a folder or a Hub id")
    parser.add_argument("--checkpoint", help="one of the family's, a folder, or a Hub id")
    parser.add_argument("--lane", help="default: cuda if an NVIDIA GPU answers, else cpu")
    parser.add_argument(
        "--boots", type=numbers.positive, default=BOOTS, metavar="N",
        help="number of boots with empty caches, and with filled ones (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--record", action="store_true", help="record these times for later comparisons"
    )
    parser.add_argument(
        "--file", type=Path, metavar="FILE",
        help=f"the recorded times (default: {record.FOLDER}/FAMILY-CHECKPOINT-LANE.json)",
    )  # fmt: skip
    parser.add_argument(
        "--boot-timeout", type=numbers.seconds, default=LIMITS.boot_s, metavar="SECONDS",
        help="seconds that a boot may take (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--stall-timeout", type=numbers.seconds, default=LIMITS.stall_s, metavar="SECONDS",
        help="seconds that its log may stay silent (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Boot, print and compare; 1 if a boot fails, is slower, or is healthy too soon."""
    project = projects.current()
    machine = machine_inspect.inspect()
    lane, _ = named.lane(options.lane, project, machine)
    family, checkpoint, _ = named.served(options.model, options.checkpoint, lane, project)
    if lane.base_url:
        raise UserError(
            f"lane {lane.name}: its server is already running, so its start cannot be timed\n"
            "name a lane that boots a server: vllm-gates lane list"
        )
    from pytest_vllm_gates.warmup import boots, marks  # noqa: PLC0415 - heavy

    begun_s = time.monotonic()
    ready = environment.prepare(lane, cache=files.default_cache(), progress=_say)
    environment_s = time.monotonic() - begun_s
    folder = Path(tempfile.mkdtemp(prefix="warmup-"))
    limits = BootLimits(boot_s=options.boot_timeout, stall_s=options.stall_timeout)
    task = boots.WarmupTask(
        family, checkpoint, lane, ready.python, folder, project, limits, marks.load(), _progress
    )
    done = []
    try:
        for number, boot in enumerate(boots.boots(task, options.boots), 1):
            done.append(boot)
            _say(f"boot {number} of {2 * options.boots}: {boot.caches}, {boot.total_s:.1f} s")
    except boots.WarmupFailed as error:
        _say(f"error: {error}")
        return 1
    finally:
        for caches in folder.glob("caches-*"):
            shutil.rmtree(caches, ignore_errors=True)
    times = WarmupTimes(
        family.name, checkpoint.name, lane.name, ready.vllm or "", _machine(machine),
        datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), environment_s, done,
    )  # fmt: skip
    path = options.file or record.default_file(project, times)
    recorded = record.read(path) if path.exists() else None
    if options.record:
        record.write(path, times)
    bad = [*faults(times, recorded)]
    if options.json:
        print(json.dumps({**record.document(times), "faults": bad}, indent=1))
    else:
        print("\n".join([*table(times), *compared(times, recorded), *bad]))
        print(f"the logs are in {folder}")
        if options.record:
            print(f"recorded in {path}")
        elif recorded is None:
            print("no recorded times to compare with; to record these times, add --record")
    return 1 if bad else 0


def table(times: WarmupTimes) -> Iterator[str]:
    """Yield the times as lines, one for each phase."""
    version = f", vLLM {times.vllm}" if times.vllm else ""
    yield f"{times.family}, checkpoint {times.checkpoint}, on lane {times.lane}{version}"
    columns = {caches: phase_spreads(times.of(caches)) for caches in (COLD, WARM)}
    counts = {caches: len(times.of(caches)) for caches in columns}
    heads = [f"{name} ({count} boot{'s' * (count != 1)})" for name, count in counts.items()]
    yield f"{'seconds':16}{heads[0]:26}{heads[1]}"
    yield f"{'environment':16}{times.environment_s:6.1f}"
    for name in dict.fromkeys(name for column in columns.values() for name in column):
        cells = []
        for column in columns.values():
            spread = column.get(name)
            cells.append(
                f"{spread.median:6.1f} ({spread.least:.1f} to {spread.most:.1f})" if spread else ""
            )
        yield f"{name:16}{cells[0]:26}{cells[1]}".rstrip()


def compared(times: WarmupTimes, recorded: WarmupTimes | None) -> Iterator[str]:
    """Yield the comparisons with the recorded times that are not faults."""
    if recorded is None:
        return
    if recorded.machine != times.machine:
        yield f"recorded on another machine ({recorded.machine}): not compared"
        return
    for change in changes(times, recorded):
        if change.is_slower:
            continue
        more = "; more boots could decide (--boots 5)" if change.is_open else ""
        yield (
            f"{change.caches}: {change.now.median:.1f} s, recorded {change.recorded.median:.1f} s "
            f"on {recorded.created[:10]}{more}"
        )


def faults(times: WarmupTimes, recorded: WarmupTimes | None) -> Iterator[str]:
    """Yield the faults of the starts: a `/health` that is too early, and slower boots."""
    early = [boot for boot in times.boots if boot.is_early]
    if early:
        worst = max(early, key=lambda boot: boot.first_chat_s)
        yield (
            f"/health answers before the server can serve ({len(early)} of {len(times.boots)} "
            f"boots): the first answer took {worst.first_chat_s:.1f} s after it, the next "
            f"{worst.next_chat_s:.1f} s\nsend a chat in the readiness probe, or before traffic"
        )
    if recorded is None or recorded.machine != times.machine:
        return
    for change in changes(times, recorded):
        if change.is_slower:
            yield (
                f"{change.caches}: {change.now.median:.1f} s, recorded "
                f"{change.recorded.median:.1f} s on {recorded.created[:10]} with vLLM "
                f"{recorded.vllm or '?'}: every boot is slower than every recorded one "
                f"(chance 1 in {round(1 / change.chance)})"
            )


def _machine(machine: Machine) -> str:
    gpus = ", ".join(machine.gpus)
    return gpus or f"{machine.cpu}, {machine.cores} cores"


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _progress(line: str) -> None:
    """Print a line of a boot's progress on a terminal, several times a second."""
    if sys.stderr.isatty():
        print(f"\r{line[:SHOWN]:{SHOWN}}", end="", file=sys.stderr, flush=True)
