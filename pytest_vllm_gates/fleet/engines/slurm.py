"""Slurm: an array of jobs for each number of devices, as a script for `sbatch`.

https://slurm.schedmd.com/job_array.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.fleet.engines import form as forms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.fleet.engines.form import Form
    from pytest_vllm_gates.fleet.shards import FleetPlan, Needs, Shard


def files(plan: FleetPlan, form: Form) -> dict[str, str]:
    """Return the scripts, to be submitted from the project's folder on a shared file system."""
    groups = [*forms.alike(plan, form)]
    return {
        "fleet.sbatch" if len(groups) == 1 else f"fleet-{number}.sbatch": _script(
            needs, batch, form
        )
        for number, (needs, batch) in enumerate(groups, 1)
    }


def _script(needs: Needs, batch: Sequence[Shard], form: Form) -> str:
    devices = (
        f"# {needs}: name a kind by your site's names, as --gres=gpu:h100:{needs.gpus}\n"
        f"#SBATCH --gres=gpu:{needs.gpus}\n#SBATCH --partition={form.queue}\n"
        if needs.gpus
        else f"#SBATCH --cpus-per-task={form.cpus}\n#SBATCH --mem={form.memory_gib}G\n"
    )
    names = "\n".join(f"  {shard.name}" for shard in batch)
    return f"""#!/bin/bash
#SBATCH --job-name=vllm-gates
#SBATCH --array=0-{len(batch) - 1}
#SBATCH --time={forms.limit_minutes(batch)}
#SBATCH --output={forms.REPORTS}-%A-%a.log
{devices}
# Afterwards: {form.merge()}
set -euo pipefail
shards=(
{names}
)
{form.shard('"${shards[$SLURM_ARRAY_TASK_ID]}"')}
"""
