"""A shell script that runs the shards one after the other on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_vllm_gates.fleet.engines.form import Form
    from pytest_vllm_gates.fleet.shards import FleetPlan


def files(plan: FleetPlan, form: Form) -> dict[str, str]:
    """Return the script."""
    names = " \\\n  ".join(shard.name for shard in plan.shards)
    return {
        "fleet.sh": f"""#!/bin/sh
# A shard that left no verdict is missing in the merged one, which names the command for it.
for name in \\
  {names}
do
  {form.shard('"$name"')} || :
done
{form.merge()}
"""
    }
