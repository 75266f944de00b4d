"""`vllm-gates matrix`: splits families, lanes and features into shards, in an engine's form."""

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

SUMMARY = """plan the gates of many families, lanes and features as shards for several machines;
print them, or write them in the form of a CI system or a cluster"""
ENGINES = ("github", "gitlab", "buildkite", "k8s", "slurm", "argo", "ray", "xdist", "loop")
MINUTE_S = 60


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    form = Form(shards.FILE)
    parser = commands.add_parser("matrix", help=SUMMARY, description=SUMMARY)
    parser.add_argument(
        "--families",
        default=served.EVERY,
        metavar="NAMES",
        help="default: all families that a lane serves",
    )
    parser.add_argument("--lanes", default="cpu", metavar="NAMES", help="default: cpu")
    parser.add_argument(
        "--features", default="", metavar="SETS",
        help="make a shard for each: names from features.toml, NAME+NAME for several at once",
    )  # fmt: skip
    parser.add_argument("--gates", default="", metavar="NAMES", help="default: every gate")
    parser.add_argument(
        "--shard-minutes", type=_minutes, metavar="N",
        help="the intended duration of a shard; default: a family on a lane is one shard",
    )  # fmt: skip
    parser.add_argument(
        "--recorded", type=Path, action="append", default=[], metavar="DIR",
        help="read durations from the reports in this folder (may be repeated)",
    )  # fmt: skip
    parser.add_argument(
        "--plan", type=Path, default=Path(shards.FILE), metavar="FILE",
        help=f"the plan's file to write, in the project (default {shards.FILE})",
    )  # fmt: skip
    parser.add_argument(
        "--as", dest="engine", choices=ENGINES, help="also write it in the form of this engine"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(), metavar="DIR", help="the folder of the engine's files"
    )
    parser.add_argument("--image", default=form.image, help=f"of a container ({form.image})")
    parser.add_argument(
        "--queue", default=form.queue,
        help="the queue of Kueue, Buildkite or Slurm, or the label of GitHub's runners, with GPUs",
    )  # fmt: skip
    parser.add_argument(
        "--volume", default=form.volume, help=f"the volume claim for reports ({form.volume})"
    )
    parser.add_argument(
        "--cpus", type=_count, default=form.cpus, metavar="N",
        help=f"cores that a shard without a GPU requests ({form.cpus})",
    )  # fmt: skip
    parser.add_argument(
        "--memory-gib", type=_count, default=form.memory_gib, metavar="N",
        help=f"memory that it requests, in GiB ({form.memory_gib})",
    )  # fmt: skip
    parser.add_argument(
        "--install", default="", help=f"the command that installs (default: {form.installs})"
    )
    parser.add_argument(
        "--store", default="", metavar="STORE",
        help="the store for the shards' reports, which the merge reads; see `vllm-gates store`",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the plan and an engine's files; print the shards."""
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
            f"--plan {options.plan}: every machine finds it by its relative path in the project\n"
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
    """Return a set of features by its proper names; raises `UserError` for an unknown one."""
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
        raise argparse.ArgumentTypeError(f"expected an integer >= 1, got {value}")
    return number
