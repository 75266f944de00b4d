"""Spreads families over GPUs with pytest-xdist: one worker, one set of devices, one server."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.server.types import Boot, BootTimes, Failure
from pytest_vllm_gates.session import unwritten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.session.run import Run

DEVICES_VARIABLE = "CUDA_VISIBLE_DEVICES"
OUTPUT = "vllm_gates"


def prepare(config: pytest.Config, run: Run) -> None:
    """Give a worker its devices; on the controller, refuse workers that would share one.

    Raises `pytest.UsageError` if there are fewer devices than the workers' servers need.
    """
    worker: Mapping[str, Any] | None = getattr(config, "workerinput", None)
    size = devices_each(run)
    if worker is not None:
        number = int(str(worker["workerid"]).removeprefix("gw"))
        run.server_env[DEVICES_VARIABLE] = ",".join(
            str(device) for device in range(number * size, (number + 1) * size)
        )
        return
    workers = len(config.getoption("tx", None) or ())
    if not workers:
        return
    gpus = len(run.machine.gpus)
    if run.lane.base_url:
        raise pytest.UsageError(
            "several workers (-n) cannot share one running server: leave -n out"
        )
    if workers * size > gpus:
        raise pytest.UsageError(
            f"-n {workers} would boot {workers} servers at once, each on {size} of this machine's "
            f"{gpus} GPUs: leave -n out, and families follow one another (-n 0 if the project's "
            "settings have a -n)"
        )


def scheduler(config: pytest.Config, log: Any, families: Sequence[str]) -> Any:
    """Return the scheduler that keeps a family's tests on one worker, whose server boots once.

    xdist's own `loadgroup` hangs the group onto a node id that pytest 9.2 no longer lets it change.
    """
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - only where xdist is at work

    class ByFamily(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return family_in(nodeid, families) or nodeid.partition("[")[0]

    return ByFamily(config, log)


def family_in(nodeid: str, families: Sequence[str]) -> str | None:
    """Return the family with which a test is parametrised: the longest name in its id."""
    parameters = nodeid.partition("[")[2]
    for name in sorted(families, key=len, reverse=True):
        if re.search(rf"(?:^|-){re.escape(name)}(?:-|\]|$)", parameters):
            return name
    return None


def devices_each(run: Run) -> int:
    """Return how many devices the largest server of the run needs."""
    from pytest_vllm_gates.catalog import flags  # noqa: PLC0415

    sizes = [1]
    for subject in run.subjects:
        serve = flags.serving(subject.family, subject.checkpoint, run.lane)
        sizes.append(flags.devices(serve))
    return max(sizes)


def hand_over(config: pytest.Config, run: Run) -> None:
    """Hand a worker's boots to the controller, which writes the report."""
    output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if output is None:
        return
    boots = {
        name: dataclasses.asdict(dataclasses.replace(boot, endpoint=None))
        | {"ok": boot.endpoint is not None}
        for name, boot in run.boots.items()
    }
    known = {
        "boots": boots,
        "versions": run.versions,
        "inventory": run.inventory,
        "notes": run.notes,
        "incidents_lost": run.incidents_lost,
    }
    output[OUTPUT] = json.dumps(run.redactor.json(known))


def take_over(output: Mapping[str, Any], run: Run) -> None:
    """Take what a worker handed over into the controller's run."""
    handed = json.loads(output.get(OUTPUT, "{}"))
    run.versions.update(handed.get("versions", {}))
    run.inventory.update(handed.get("inventory", {}))
    for line in handed.get("notes", ()):
        unwritten.note(run, line)
    for cause, tests in handed.get("incidents_lost", {}).items():
        run.incidents_lost.setdefault(cause, []).extend(tests)
    for name, boot in handed.get("boots", {}).items():
        failure = boot["failure"]
        run.boots[name] = Boot(
            endpoint=Endpoint("", "") if boot["ok"] else None,
            failure=Failure(what=failure["what"], excerpt=tuple(failure["excerpt"]))
            if failure
            else None,
            times=BootTimes(**boot["times"]) if boot["times"] else None,
            evidence=boot["evidence"],
        )
