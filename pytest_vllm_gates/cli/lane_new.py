"""`vllm-gates lane new`: writes a lane for a release of vLLM, locked and checked."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import lane as lanes, project as projects, releases
from pytest_vllm_gates.catalog.of_release import device_here
from pytest_vllm_gates.checkpoints import named
from pytest_vllm_gates.cli import nightly_hosts
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import write_together
from pytest_vllm_gates.lanes import freeze, new
from pytest_vllm_gates.machine import inspect as machine_inspect
from pytest_vllm_gates.nightly import fetch, wheels
from pytest_vllm_gates.nightly.types import SHA
from pytest_vllm_gates.preflight import checks as preflight_checks, gather
from pytest_vllm_gates.report import checks as report

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_vllm_gates.nightly.types import NightlyWheel
    from pytest_vllm_gates.preflight.types import Check

NEW = """write a lane for a release of vLLM: lanes/NAME.toml and a lock of every package, with the
start command, the flags and the repairs of that release; all files or none"""
MODEL = "qwen3.5"


def declare(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = actions.add_parser("new", help=NEW, description=NEW)
    parser.add_argument("name", metavar="NAME", help="the name of the lane to write")
    parser.add_argument("--vllm", required=True, metavar="VERSION", help="a release, as 0.29.0")
    parser.add_argument(
        "--commit", metavar="HASH",
        help="use the wheel of this commit of vLLM instead of the release's, for CUDA; start "
        "command and flags are the release's",
    )  # fmt: skip
    nightly_hosts.declare(parser, commits=False)
    parser.add_argument(
        "--device", choices=sorted(releases.table().devices), help="default: this machine's device"
    )
    parser.add_argument(
        "--with", dest="besides", action="append", default=[], metavar="REQUIREMENT",
        help="pin a package, such as 'transformers==5.16.1' (may be repeated)",
    )  # fmt: skip
    parser.add_argument(
        "--model", default=MODEL, metavar="NAME",
        help="a family, folder or Hub id to check the lane with (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="resolve and check without writing")
    parser.add_argument("--force", action="store_true", help="overwrite the lane of that name")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Resolve, check and write the lane; 1, without writing, if preflight fails."""
    project = projects.current()
    command = f"vllm-gates lane new {options.name} --vllm {options.vllm}"
    file = freeze.target(
        options.name, project, lanes.files(project), force=options.force, command=command
    )
    device = options.device or device_here()
    print(f"resolving vLLM {options.vllm} on {device}", file=sys.stderr)
    lane = new.compose(
        file, options.vllm, device, besides=options.besides, wheel=_wheel(options, device)
    )
    checks = _checked(lane, file, options.model, project)
    failed = preflight_checks.failed(checks)
    written = not options.dry_run and not failed
    if written:
        write_together(lane.files)
    names = [str(path.relative_to(project)) for path in lane.files] if written else []
    if options.json:
        document = {"lane": file.stem, "vllm": options.vllm, "device": device,
                    "done": list(lane.done), "files": names,
                    "preflight": report.preflight_document(checks)}  # fmt: skip
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        _print(options, lane, names, failed)
    return int(bool(failed))


def _wheel(options: argparse.Namespace, device: str) -> NightlyWheel | None:
    """Return the wheel of the typed commit, or None."""
    if options.commit is None:
        return None
    if releases.table().devices[device].package != wheels.PACKAGE:
        raise UserError(
            f"--commit is for CUDA, because vLLM publishes only its wheels by commit, not for "
            f"{device}\n"
            f"try: vllm-gates lane new {options.name} --vllm {options.vllm} --device cuda "
            f"--commit {options.commit}"
        )
    if not SHA.fullmatch(options.commit):
        raise UserError(
            f"--commit {options.commit!r}: expected all 40 digits of a commit's hash\n"
            "print them: git log -1 --format=%H COMMIT"
        )
    hosts = nightly_hosts.of(options)
    with fetch.client() as client:
        wheel = wheels.of_commit(options.commit, hosts, client)
    if wheel is None:
        raise UserError(
            f"commit {options.commit} has no wheel for this machine\n"
            f"list its wheels: curl -fL {wheels.list_address(options.commit, hosts)}"
        )
    return wheel


def _print(
    options: argparse.Namespace, lane: new.NewLane, names: Sequence[str], failed: Sequence[Check]
) -> None:
    print(f"lane {options.name}: vLLM {options.vllm}")
    for line in lane.done:
        print(f"  {line}")
    for name in names:
        print(f"  written: {name}")
    if failed:
        print(f"preflight with {options.model} fails, so nothing was written:")
        print(preflight_checks.explain(failed))
        return
    print(f"preflight with {options.model}: no check fails")
    if names:
        print(f"try it: pytest --model {options.model} --lane {options.name} -m boot")
    else:
        print("--dry-run: nothing was written")


def _checked(lane: new.NewLane, file: Path, model: str, project: Path) -> tuple[Check, ...]:
    """Return the preflight checks of a lane that is not written yet."""
    with tempfile.TemporaryDirectory(prefix="vllm-gates-") as folder:
        aside = Path(folder)
        write_together({aside / "lanes" / path.name: text for path, text in lane.files.items()})
        loaded = lanes.load(file.stem, aside)
        family, checkpoint, _ = named.served(model, None, loaded, project)
        return preflight_checks.run(
            gather.gather(
                family,
                checkpoint,
                loaded,
                environment.at_hand(loaded, cache=files.default_cache()),
                machine_inspect.inspect(),
            )
        )
