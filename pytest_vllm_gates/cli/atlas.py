"""`vllm-gates atlas`: the checks that fail in releases of vLLM, since when and until when."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates import files
from pytest_vllm_gates.atlas import kept, markdown, plan as atlas_plan, rows, runs as atlas_runs
from pytest_vllm_gates.atlas.session import AtlasSession
from pytest_vllm_gates.bisection import index
from pytest_vllm_gates.catalog import (
    family as families,
    known_defects,
    project as projects,
    releases as catalog_releases,
)
from pytest_vllm_gates.catalog.of_release import device_here
from pytest_vllm_gates.checkpoints import named
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import write_whole
from pytest_vllm_gates.report.progress import Progress

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_vllm_gates.atlas.plan import AtlasPlan
    from pytest_vllm_gates.atlas.types import AtlasRun
    from pytest_vllm_gates.catalog.known_defects import KnownDefect

SUMMARY = """run the gates on several releases of vLLM, and report which check fails in which:
since when, until when, and the request that shows it"""
EVERY = "all"
MINUTE_S = 60


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser("atlas", help=SUMMARY, description=SUMMARY)
    parser.add_argument(
        "--releases", metavar="A..B", help="the index's releases from A to B, or a list A,B,C"
    )
    parser.add_argument(
        "--add", metavar="RELEASE", help="add this release for the families with kept runs"
    )
    parser.add_argument(
        "--model", metavar="NAMES", help=f"families, such as qwen3.5,glm, or {EVERY}"
    )  # fmt: skip
    parser.add_argument(
        "--device", choices=sorted(catalog_releases.table().devices),
        help="default: this machine's device",
    )  # fmt: skip
    parser.add_argument("--again", action="store_true", help="repeat runs that are kept")
    parser.add_argument("--dry-run", action="store_true", help="print the runs and their time")
    parser.add_argument(
        "--table", action="store_true", help="print the table of kept runs, without running"
    )
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="FILE",
        help="print the table of results that --record wrote, without running",
    )  # fmt: skip
    parser.add_argument(
        "--record", type=Path, metavar="FILE",
        help="write the results of all kept runs, without paths, to this file",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Make the missing runs and print the table; 1 if a run has no verdict."""
    project = projects.current()
    atlas = project / kept.FOLDER
    _check(options)
    failed = False
    if not options.table and options.source is None:
        plan = _plan(options, project, kept.load(atlas))
        _print_plan(plan)
        if options.dry_run:
            return 0
        failed = _made(options, project, atlas, plan)
    found = atlas_runs.read(options.source) if options.source else kept.load(atlas)
    if not found:
        raise UserError(
            f"{atlas}: no run is kept\n"
            "make a run: vllm-gates atlas --releases 0.31.0..0.32.0 --model qwen3.5"
        )
    if options.record:
        write_whole(options.record, atlas_runs.text(found))
    table = rows.of_runs(found, _defects(found, project))
    if options.json:
        print(json.dumps(markdown.document(found, table), indent=2, ensure_ascii=False))
    else:
        print(markdown.page(found, table), end="")
    return int(failed)


def _check(options: argparse.Namespace) -> None:
    running = [name for name in ("releases", "add") if getattr(options, name)]
    shown = [f"--{name}" for name in running]
    if options.table or options.source:
        if running or options.dry_run or options.again:
            raise UserError(
                "--table and --from do not run anything: leave out --releases and --add"
            )
        return
    if len(running) != 1:
        raise UserError(
            f"expected one of --releases and --add, got {' and '.join(shown) or 'neither'}\n"
            "try: vllm-gates atlas --releases 0.31.0..0.32.0 --model qwen3.5"
        )
    if options.releases and not options.model:
        raise UserError("--model is missing: vllm-gates atlas --releases … --model qwen3.5")


def _plan(options: argparse.Namespace, project: Path, found: list[AtlasRun]) -> AtlasPlan:
    device = options.device or device_here()
    if options.add:
        releases = [str(catalog_releases.parsed(options.add))]
    else:
        package = catalog_releases.table().devices[device].package
        known = index.releases_of(package) if atlas_plan.TO in options.releases else ()
        releases = atlas_plan.releases(options.releases, package, known)
    names = _families(options.model, project, found)
    return atlas_plan.of(releases, names, found, again=options.again)


def _families(text: str | None, project: Path, found: Sequence[AtlasRun]) -> list[str]:
    if text is None:
        names = list(dict.fromkeys(run.family for run in found))
        if not names:
            raise UserError(
                "--add: no run is kept to take the families from\n"
                "name the families: vllm-gates atlas --add RELEASE --model qwen3.5"
            )
        return names
    if text == EVERY:
        return sorted(families.files(project))
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        named.family(name, project)
    return names


def _print_plan(plan: AtlasPlan) -> None:
    for release, family in plan.made:
        print(f"kept:    {release} {family}", file=sys.stderr)
    for release, family in plan.missing:
        print(f"to run:  {release} {family}", file=sys.stderr)
    minutes = plan.seconds / MINUTE_S
    print(f"{len(plan.missing)} runs, about {minutes:.0f} minutes", file=sys.stderr, flush=True)


def _made(options: argparse.Namespace, project: Path, atlas: Path, plan: AtlasPlan) -> bool:
    """Make the runs; return whether a run has no verdict."""
    progress = Progress(_write, terminal=sys.stderr.isatty())
    session = AtlasSession(
        project, atlas, options.device or device_here(), files.default_cache(), progress
    )
    failed = False
    unresolved: dict[str, str] = {}
    for release, family in plan.missing:
        problem = unresolved.get(release, "")
        if not problem:
            try:
                lane = session.lane(release)
            except UserError as error:
                problem = unresolved[release] = str(error)
            else:
                problem = session.make(release, family, lane)
        if problem:
            failed = True
            print(f"{release} {family}: {problem}", file=sys.stderr)
    return failed


def _write(text: str) -> None:
    sys.stderr.write(text)


def _defects(found: Sequence[AtlasRun], project: Path) -> dict[str, list[KnownDefect]]:
    """Return the known defects by family; for a removed family only the shared ones."""
    shared = known_defects.load_all(project)
    result = {}
    for name in dict.fromkeys(run.family for run in found):
        try:
            own = families.load(name, project).known_defects
        except UserError:
            own = ()
        result[name] = [*own, *shared]
    return result
