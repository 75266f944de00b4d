"""`vllm-gates backends`: boots each attention backend of the platform, and compares them.

Each is booted separately on the lane, scores a few prompts, and is timed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import files
from pytest_vllm_gates.backends import catalog
from pytest_vllm_gates.backends.types import DEFAULT, BackendMatrix
from pytest_vllm_gates.catalog import project as projects
from pytest_vllm_gates.checkpoints import named, prompt_files
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.machine import cpu_flags, inspect as machine_inspect, recorded
from pytest_vllm_gates.preflight import gather
from pytest_vllm_gates.server.patience import BootLimits

if TYPE_CHECKING:
    import argparse

    from pytest_vllm_gates.backends.catalog import Backend, Platform
    from pytest_vllm_gates.environment.environment import Environment
    from pytest_vllm_gates.machine.types import Machine

EXPECTED_S = 60
"""Seconds of one boot with its requests, on an idle machine."""
SHOWN = 79
LIMITS = BootLimits(boot_s=1800.0, stall_s=300.0)


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    summary = "test which attention backends boot and answer correctly, and how fast they are"
    parser = commands.add_parser("backends", help=summary, description=summary)
    parser.add_argument("--model", required=True, help="a family, a folder or a Hub id")
    parser.add_argument("--checkpoint", help="one of the family's, a folder, or a Hub id")
    parser.add_argument("--lane", help="default: cuda if an NVIDIA GPU answers, else cpu")
    parser.add_argument(
        "--backend", action="append", metavar="NAME", help="only this backend (may be repeated)"
    )
    parser.add_argument(
        "--machine", type=Path, metavar="FILE",
        help="with --dry-run, plan for another machine: its `vllm-gates inventory --json`, or its "
        "`nvidia-smi -q -x`",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="print the boots without booting")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Boot the backends and print the results; 1 if a backend does not work."""
    if options.machine and not options.dry_run:
        raise UserError("--machine plans for another machine: add --dry-run")
    project = projects.current()
    machine = recorded.read(options.machine) if options.machine else machine_inspect.inspect()
    lane, _ = named.lane(options.lane, project, machine)
    family, checkpoint, _ = named.served(options.model, options.checkpoint, lane, project)
    if lane.base_url or lane.command:
        raise UserError(
            f"lane {lane.name}: its {lane.form} has a fixed backend\n"
            "name a lane with an interpreter or a lock: python = …"
        )
    layers = catalog.layers_of(prompt_files.config(checkpoint.source))
    cache = files.default_cache()
    planned = environment.at_hand(lane, cache=cache)
    backends, left_out = catalog.sorted_out(catalog.load(), platform_of(planned, machine), layers)
    backends = _asked(backends, left_out, options.backend)
    if options.dry_run:
        return _show_plan(backends, left_out, as_json=options.json)
    from pytest_vllm_gates.backends import run as backends_run  # noqa: PLC0415 - heavy

    ready = environment.prepare(lane, cache=cache, progress=_say)
    task = backends_run.BackendTask(
        family, checkpoint, lane, ready.python, ready.vllm,
        Path(tempfile.mkdtemp(prefix="backends-")), LIMITS, _progress,
    )  # fmt: skip
    trials = backends_run.Trials(task)
    done = []
    for number, backend in enumerate((None, *backends), 1):
        _say(f"boot {number} of {len(backends) + 1}: {backend.name if backend else DEFAULT}")
        done.append(trials.of(backend))
    matrix = BackendMatrix(done, left_out)
    if options.json:
        print(json.dumps(matrix.as_json(), indent=2, ensure_ascii=False))
    else:
        print(f"{family.name}, checkpoint {checkpoint.name}, on lane {lane.name}: {lane.title}")
        print("\n".join(matrix.lines()))
        print(f"one boot each, so speeds are only a hint; the logs are in {task.folder}")
    return matrix.status


def platform_of(planned: Environment, machine: Machine) -> Platform:
    """Return the facts that decide which backends are available."""
    capability = machine.devices[0].capability if machine.devices else None
    return catalog.Platform(
        device=gather.of(planned).device or ("cuda" if machine.gpus else "cpu"),
        version=planned.vllm,
        packages=frozenset(planned.versions),
        major=int(capability.partition(".")[0]) if capability else None,
        amx="amx_tile" in cpu_flags.flags(),
    )


def _asked(
    backends: tuple[Backend, ...], left_out: dict[str, str], names: list[str] | None
) -> tuple[Backend, ...]:
    """Return the backends of these names, or all; raises `UserError` for an unknown name."""
    known = {backend.name: backend for backend in backends}
    for name in names or ():
        if name in left_out:
            raise UserError(f"{name} is not available here: {left_out[name]}")
        if name not in known:
            offered = ", ".join(known) or "none"
            raise UserError(f"no backend {name!r} for this model and device; available: {offered}")
    return tuple(known[name] for name in names) if names else backends


def _show_plan(backends: tuple[Backend, ...], left_out: dict[str, str], *, as_json: bool) -> int:
    flags_of = {DEFAULT: dict[str, Any](), **{backend.name: backend.serve for backend in backends}}
    boots = [{"name": name, "serve": serve} for name, serve in flags_of.items()]
    if as_json:
        document = {"boots": boots, "left_out": left_out, "expected_s": EXPECTED_S * len(boots)}
        print(json.dumps(document, indent=2))
        return 0
    for name, serve in flags_of.items():
        flags = ", ".join(f"{flag} = {value}" for flag, value in serve.items())
        print(f"{name:28} {flags or 'the lane unchanged'}")
    for name, why in left_out.items():
        print(f"{name:28} not tried: {why}")
    print(f"{len(boots)} boots, about {EXPECTED_S * len(boots) // 60} minutes on an idle machine")
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _progress(line: str) -> None:
    """Print a line of a boot's progress on a terminal, several times a second."""
    if sys.stderr.isatty():
        print(f"\r{line[:SHOWN]:{SHOWN}}", end="", file=sys.stderr, flush=True)
