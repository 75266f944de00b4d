"""GitLab: a child pipeline, whose jobs read the plan from the checkout.

https://docs.gitlab.com/ci/pipelines/downstream_pipelines/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.fleet.engines import form as forms

if TYPE_CHECKING:
    from pytest_vllm_gates.fleet.engines.form import Form
    from pytest_vllm_gates.fleet.shards import FleetPlan


def files(plan: FleetPlan, form: Form) -> dict[str, str]:
    """Return the pipeline: a job for each shard, then the merge, even after failures."""
    pipeline: dict[str, Any] = {
        "stages": ["shards", "merge"],
        "default": {"image": form.image, "before_script": [form.installs]},
    }
    for shard in plan.shards:
        job: dict[str, Any] = {
            "stage": "shards",
            "script": [form.shard(shard.name)],
            "timeout": f"{forms.limit_minutes([shard])} minutes",
            "artifacts": {"when": "always", "paths": [f"{forms.REPORTS}/{shard.name}"]},
            "allow_failure": True,
        }
        if shard.needs.gpus:
            job["tags"] = [form.queue]
        pipeline[shard.name] = job
    pipeline["merge"] = {
        "stage": "merge",
        "when": "always",
        "script": [form.merge()],
        "artifacts": {"when": "always", "paths": [forms.MERGED]},
    }
    return {"fleet-gitlab.yml": forms.as_yaml(pipeline)}
