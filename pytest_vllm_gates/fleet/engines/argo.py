"""Argo Workflows: the shards as items of one step, the merge at the workflow's end.

https://argo-workflows.readthedocs.io/en/latest/walk-through/loops/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.fleet import shards as fleet_shards
from pytest_vllm_gates.fleet.engines import form as forms

if TYPE_CHECKING:
    from pytest_vllm_gates.fleet.engines.form import Form
    from pytest_vllm_gates.fleet.shards import FleetPlan

STORE, PLAN = "/store", "/plan"
LOCAL = f"{PLAN}/{fleet_shards.FILE}"


def files(plan: FleetPlan, form: Form) -> dict[str, str]:
    """Return the workflow, which contains the plan as an artifact."""
    templates: list[dict[str, Any]] = []
    steps = []
    for number, (needs, batch) in enumerate(forms.alike(plan, form), 1):
        name = f"shard-{number}"
        templates.append(
            {
                "name": name,
                "inputs": {"parameters": [{"name": "shard"}], "artifacts": [_plan(plan)]},
                "activeDeadlineSeconds": 60 * forms.limit_minutes(batch),
                **forms.affinity(needs),
                "container": _container(
                    form.shard("{{inputs.parameters.shard}}", LOCAL, STORE), form, needs.gpus
                ),
            }
        )
        steps.append(
            {
                "name": name,
                "template": name,
                "arguments": {"parameters": [{"name": "shard", "value": "{{item}}"}]},
                "withItems": [shard.name for shard in batch],
                "continueOn": {"failed": True, "error": True},
            }
        )
    templates += [
        {"name": "shards", "steps": [steps]},
        {
            "name": "merge",
            "inputs": {"artifacts": [_plan(plan)]},
            "container": _container(form.merge(LOCAL, STORE, f"{STORE}/{forms.MERGED}"), form, 0),
        },
    ]
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"generateName": "vllm-gates-"},
        "spec": {
            "entrypoint": "shards",
            "onExit": "merge",
            "volumes": [
                {"name": "store", **form.reports_volume},
                forms.SHARED_MEMORY,
            ],
            "templates": templates,
        },
    }
    return {"fleet-argo.yaml": forms.as_yaml(workflow)}


def _plan(plan: FleetPlan) -> dict[str, Any]:
    return {"name": "plan", "path": LOCAL, "raw": {"data": fleet_shards.text(plan)}}


def _container(command: str, form: Form, gpus: int) -> dict[str, Any]:
    container: dict[str, Any] = {
        "image": form.image,
        "command": ["sh", "-c", f"set -eu\n{form.installs}\n{command}\n"],
        "volumeMounts": [{"name": "store", "mountPath": STORE}, forms.SHARED_MEMORY_MOUNT],
    }
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else form.resources
    container["resources"] = {"limits": limits}
    return container
