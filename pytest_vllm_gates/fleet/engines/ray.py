"""Ray: a program for `ray job submit` that runs each shard as a task with its devices.

https://docs.ray.io/en/latest/cluster/running-applications/job-submission/quickstart.html
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_vllm_gates.fleet.engines import form as forms

if TYPE_CHECKING:
    from pytest_vllm_gates.fleet.engines.form import Form
    from pytest_vllm_gates.fleet.shards import FleetPlan

PROGRAM = '''"""Run the shards of a fleet as tasks of a Ray cluster, then merge them.

The project's folder has to be one that every node sees:

    ray job submit --address http://HEAD:8265 -- python {name}
"""

import subprocess
import sys
from pathlib import Path

import ray

FOLDER = Path(__file__).resolve().parent
GPUS = {gpus}
"""How many devices each shard needs."""


@ray.remote(max_retries=1)
def shard(name):
    """Return the exit status of a shard, 0 as soon as it has a verdict."""
    command = [sys.executable, "-m", "pytest_vllm_gates.cli.main", *{shard}]
    return subprocess.run([*command, name, *{more}], cwd=FOLDER).returncode


def main():
    """Return the exit status of the merged verdict."""
    ray.init()
    tasks = {{
        name: shard.options(num_cpus=0 if gpus else {cpus}, num_gpus=gpus).remote(name)
        for name, gpus in GPUS.items()
    }}
    for name, task in tasks.items():
        try:
            print(name, ray.get(task), flush=True)
        except ray.exceptions.RayError as error:
            print(name, error, flush=True)
    command = [sys.executable, "-m", "pytest_vllm_gates.cli.main", *{merge}]
    return subprocess.run(command, cwd=FOLDER).returncode


if __name__ == "__main__":
    sys.exit(main())
'''
NAME = "fleet_ray.py"


def files(plan: FleetPlan, form: Form) -> dict[str, str]:
    """Return the program."""
    gpus = {shard.name: shard.needs.gpus for shard in plan.shards}
    merge = [
        "merge",
        form.store or forms.REPORTS,
        "--plan",
        form.plan_file,
        "--report",
        forms.MERGED,
    ]
    text = PROGRAM.format(
        name=NAME,
        gpus=json.dumps(gpus, indent=4),
        shard=["shard", form.plan_file],
        more=form.report_options(),
        merge=merge,
        cpus=form.cpus,
    )
    return {NAME: text}
