"""GitHub Actions: a workflow with the shards as a matrix, and a job that merges.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.fleet.engines import form as forms

if TYPE_CHECKING:
    from pytest_vllm_gates.fleet.engines.form import Form
    from pytest_vllm_gates.fleet.shards import FleetPlan

CHECKOUT, PYTHON = "actions/checkout@v5", "actions/setup-python@v6"
UPLOAD, DOWNLOAD = "actions/upload-artifact@v4", "actions/download-artifact@v5"


def files(plan: FleetPlan, form: Form) -> dict[str, str]:
    """Return the workflow. A matrix beyond the limit of jobs becomes several."""
    begin: list[dict[str, Any]] = [
        {"uses": CHECKOUT},
        {"uses": PYTHON, "with": {"python-version": "3.12"}},
        {"run": form.installs},
    ]
    jobs: dict[str, Any] = {}
    for number, (needs, batch) in enumerate(forms.alike(plan, form), 1):
        jobs[f"shards-{number}"] = {
            "name": "${{ matrix.shard }}",
            "runs-on": ["self-hosted", "linux", form.queue] if needs.gpus else "ubuntu-24.04",
            "timeout-minutes": forms.limit_minutes(batch),
            "strategy": {
                "fail-fast": False,
                "matrix": {"shard": [shard.name for shard in batch]},
            },
            "steps": [
                *begin,
                {"run": form.shard("${{ matrix.shard }}")},
                {
                    "uses": UPLOAD,
                    "if": "${{ !cancelled() }}",
                    "with": {
                        "name": "shard-${{ matrix.shard }}",
                        "path": f"{forms.REPORTS}/${{{{ matrix.shard }}}}",
                    },
                },
            ],
        }
    jobs["merge"] = {
        "needs": [*jobs],
        "if": "${{ !cancelled() }}",
        "runs-on": "ubuntu-24.04",
        "timeout-minutes": 30,
        "steps": [
            *begin,
            {"uses": DOWNLOAD, "with": {"pattern": "shard-*", "path": forms.REPORTS}},
            {"run": form.merge()},
            {
                "uses": UPLOAD,
                "if": "${{ !cancelled() }}",
                "with": {"name": forms.MERGED, "path": forms.MERGED},
            },
        ],
    }
    workflow = {
        "name": "vLLM gates, fleet",
        "on": {"workflow_dispatch": None, "schedule": [{"cron": "17 2 * * *"}]},
        "permissions": {"contents": "read"},
        "jobs": jobs,
    }
    return {"fleet.yml": forms.as_yaml(workflow)}
