"""Kubernetes: an Indexed Job for each number of devices, in a queue of Kueue.

https://kubernetes.io/docs/tasks/job/indexed-parallel-processing-static/ and
https://kueue.sigs.k8s.io/docs/tasks/run/jobs/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.fleet import shards as fleet_shards
from pytest_vllm_gates.fleet.engines import form as forms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.fleet.engines.form import Form
    from pytest_vllm_gates.fleet.shards import FleetPlan, Needs, Shard

NAME = "vllm-gates"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
STORE, PLAN = "/store", "/plan"
RUN_AS = 1000


def files(plan: FleetPlan, form: Form) -> dict[str, str]:
    """Return the Jobs and a ConfigMap with the plan. Shards share a volume claim or a store."""
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{NAME}-plan"},
        "data": {fleet_shards.FILE: fleet_shards.text(plan)},
    }
    jobs = [
        _job(number, needs, batch, form)
        for number, (needs, batch) in enumerate(forms.alike(plan, form), 1)
    ]
    return {"fleet-k8s.yaml": forms.as_yaml(config, *jobs)}


def _job(number: int, needs: Needs, batch: Sequence[Shard], form: Form) -> dict[str, Any]:
    command = form.shard('"$1"', f"{PLAN}/{fleet_shards.FILE}", STORE)
    limits = {"nvidia.com/gpu": str(needs.gpus)} if needs.gpus else form.resources
    container = {
        "name": "shard",
        "image": form.image,
        # The index picks one of the names.
        "command": ["sh", "-c", 'set -eu\nset -- $SHARDS\nshift "$JOB_COMPLETION_INDEX"\n'
                    f"{forms.AS_USER}\n{form.installs}\n{command}\n"],
        "env": [
            {"name": "SHARDS", "value": " ".join(shard.name for shard in batch)},
            {"name": "HOME", "value": forms.HOME},
        ],
        "resources": {"limits": limits, "requests": dict(limits)},
        "volumeMounts": [
            {"name": "store", "mountPath": STORE},
            {"name": "plan", "mountPath": PLAN, "readOnly": True},
            forms.SHARED_MEMORY_MOUNT,
        ],
    }  # fmt: skip
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{NAME}-{number}", "labels": {QUEUE_LABEL: form.queue}},
        "spec": {
            "completionMode": "Indexed",
            "completions": len(batch),
            "parallelism": len(batch),
            # A shard without a verdict is tried once more, and does not delay the others.
            "backoffLimitPerIndex": 1,
            "maxFailedIndexes": len(batch),
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    **forms.affinity(needs),
                    "activeDeadlineSeconds": 60 * forms.limit_minutes(batch),
                    "securityContext": {"runAsNonRoot": True, "runAsUser": RUN_AS,
                                        "fsGroup": RUN_AS},
                    "containers": [container],
                    "volumes": [
                        {"name": "store", **form.reports_volume},
                        {"name": "plan", "configMap": {"name": f"{NAME}-plan"}},
                        forms.SHARED_MEMORY,
                    ],
                }
            },
        },
    }  # fmt: skip
