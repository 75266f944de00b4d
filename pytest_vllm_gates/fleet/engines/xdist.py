"""pytest-xdist: a test file with one test for each shard, for several servers on one machine.

https://pytest-xdist.readthedocs.io/en/stable/distribution.html
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_vllm_gates.fleet.engines.form import Form
    from pytest_vllm_gates.fleet.shards import FleetPlan

NAME = "test_fleet.py"
PROGRAM = '''"""Each shard of a fleet is a test, which passes as soon as the shard has a verdict:

    pytest -n 2 --dist worksteal {name}; {merge}
"""

import os
import subprocess
import sys

import pytest

WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) + 1
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


@pytest.mark.parametrize("shard", {names})
def test_shard_has_a_verdict(shard):
    command = [sys.executable, "-m", "pytest_vllm_gates.cli.main", "shard", {plan}, shard]
    part = f"{{WORKER}}/{{WORKERS}}"
    subprocess.run([*command, *{more}, "--part", part], check=True)
'''


def files(plan: FleetPlan, form: Form) -> dict[str, str]:
    """Return the test file, to run in the project's folder."""
    text = PROGRAM.format(
        name=NAME,
        merge=form.merge(),
        names=json.dumps([shard.name for shard in plan.shards], indent=4),
        plan=json.dumps(form.plan_file),
        more=form.report_options(),
    )
    return {NAME: text}
