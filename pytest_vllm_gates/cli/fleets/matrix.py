"""`vllm-gates matrix`: cuts families, lanes and features into shards, in an engine's form."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from pytest_vllm_gates.catalog import project as projects
from pytest_vllm_gates.catalog.toml import choose
from pytest_vllm_gates.cli.fleets import served
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.features import catalog
from pytest_vllm_gates.files import write_together
from pytest_vllm_gates.fleet import durations as fleet_durations, plan as fleet_plan, shards
from pytest_vllm_gates.fleet.engines.form import Form

SUMMARY = """plan the gates of many families, lanes and features as shards, for machines side by
side; print them, or write them in the form of a CI system or a cluster"""
ENGINES = ("github", "gitlab", "buildkite", "k8s", "slurm", "argo", "ray", "xdist", "loop")
MINUTE_S = 60


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Give the command its arguments."""
    form = Form(shards.FILE)
    parser = commands.add_parser("matrix", help=SUMMARY, description=SUMMARY)
    parser.add_argument(
        "--families", default=served.EVERY, metavar="NAMES", help="default: all that a lane serves"
    )
    parser.add_argument("--lanes", default="cpu", metavar="NAMES", help="default: cpu")
    parser.add_argument(
        "--features", default="", metavar="SETS",
        help="a shard for each: names of features.toml, NAME+NAME together",
    )  # fmt: skip
    parser.add_argument("--gates", default="", metavar="NAMES", help="default: every gate")
    parser.add_argument(
        "--shard-minutes", type=_minutes, metavar="N",
        help="how long a shard should take; default: a family on a lane is one shard",
    )  # fmt: skip
    parser.add_argument(
        "--recorded", type=Path, action="append", default=[], metavar="DIR",
        help="take the times from the reports in this folder; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--plan", type=Path, default=Path(shards.FILE), metavar="FILE",
        help=f"where the plan is written, beside the project (default {shards.FILE})",
    )  # fmt: skip
    parser.add_argument("--as", dest="engine", choices=ENGINES, help="also write it for an engine")
    parser.add_argument(
        "--out", type=Path, default=Path(), metavar="DIR", help="the folder of the engine's files"
    )
    parser.add_argument("--image", default=form.image, help=f"of a container ({form.image})")
    parser.add_argument(
        "--queue", default=form.queue,
        help="the queue of Kueue, Buildkite or Slurm, or the runners' label, that has GPUs",
    )  # fmt: skip
    parser.add_argument(
        "--volume", default=form.volume, help=f"the volume claim for reports ({form.volume})"
    )
    parser.add_argument(
        "--cpus", type=_count, default=form.cpus, metavar="N",
        help=f"cores that a shard without a GPU asks for ({form.cpus})",
    )  # fmt: skip
    parser.add_argument(
        "--memory-gib", type=_count, default=form.memory_gib, metavar="N",
        help=f"and its memory ({form.memory_gib})",
    )  # fmt: skip
    parser.add_argument("--install", default="", help=f"what installs (default: {form.installs})")
    parser.add_argument(
        "--store", default="", metavar="STORE",
        help="shards push their reports there, and the merge reads them; see `vllm-gates store`",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the plan and what an engine takes; print the shards."""
    known = served.served(
        _names(options.families), _names(options.lanes), _names(options.gates), projects.current()
    )
    minutes = options.shard_minutes
    features = [_features(name) for name in _names(options.features)]
    plan = fleet_plan.compose(
        known,
        features,
        fleet_durations.recorded(options.recorded),
        minutes * MINUTE_S if minutes else None,
    )
    contents: dict[Path, str | bytes] = {options.plan: shards.text(plan)}
    if options.engine:
        contents |= {
            options.out / name: text for name, text in _engine_files(options, plan).items()
        }
    write_together(contents)
    for shard in plan.shards:
        devices = f", {shard.needs}" if shard.needs.gpus else ""
        gates = ", ".join(shard.gates)
        print(f"{shard.name}: {shard.seconds / MINUTE_S:.0f} min{devices}: {gates}")
    total = sum(shard.seconds for shard in plan.shards) / MINUTE_S
    print(f"{len(plan.shards)} shards, {total:.0f} minutes one after the other", file=sys.stderr)
    for path in contents:
        print(f"written: {path}", file=sys.stderr)
    return 0


def _engine_files(options: argparse.Namespace, plan: shards.FleetPlan) -> dict[str, str]:
    if options.plan.is_absolute():
        raise UserError(
            f"--plan {options.plan}: machines side by side find it by its path in the project\n"
            f"name it from there: --plan {shards.FILE}"
        )
    form = Form(
        options.plan.as_posix(),
        fleet_durations.facts().jobs.get(options.engine),
        options.image,
        options.queue,
        options.volume,
        options.cpus,
        options.memory_gib,
        options.install,
        options.store,
    )
    engine = import_module(f"pytest_vllm_gates.fleet.engines.{options.engine}")
    files: dict[str, str] = engine.files(plan, form)
    return files


def _features(text: str) -> str:
    """Return a set of features by its right names; raises `UserError` for one that is none."""
    if text in {catalog.PAIRS, catalog.DEPLOYED}:
        return text
    known = [feature.name for feature in catalog.load()]
    return catalog.WITH.join(choose("feature", name, known) for name in text.split(catalog.WITH))


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _minutes(value: str) -> float:
    minutes = float(value)
    if not 0 < minutes < float("inf"):
        raise argparse.ArgumentTypeError(f"expected minutes above 0, got {value}")
    return minutes


def _count(value: str) -> int:
    number = int(value)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return number
