"""Buildkite: steps for `buildkite-agent pipeline upload`, the merge behind them.

https://buildkite.com/docs/pipelines/configure/dynamic-pipelines
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.fleet.engines import form as forms
from pytest_vllm_gates.fleet.plan import batches

if TYPE_CHECKING:
    from pytest_vllm_gates.fleet.engines.form import Form
    from pytest_vllm_gates.fleet.shards import FleetPlan


def files(plan: FleetPlan, form: Form) -> dict[str, str]:
    """Return the steps; beyond an upload's limit, several files to upload in order."""
    # The steps that wait and merge count, too.
    most = form.most_jobs - 2 if form.most_jobs else None
    parts = batches(plan.shards, most)
    texts = {}
    for number, batch in enumerate(parts, 1):
        steps: list[Any] = []
        for shard in batch:
            step: dict[str, Any] = {
                "label": shard.name,
                "key": shard.name,
                "commands": [form.installs, form.shard(shard.name)],
                "artifact_paths": f"{forms.REPORTS}/{shard.name}/**/*",
                "timeout_in_minutes": forms.limit_minutes([shard]),
                "soft_fail": True,
            }
            if shard.needs.gpus:
                step["agents"] = {"queue": form.queue}
            steps.append(step)
        if number == len(parts):
            steps += [
                {"wait": None, "continue_on_failure": True},
                {
                    "label": "merge",
                    "commands": [
                        form.installs,
                        f'buildkite-agent artifact download "{forms.REPORTS}/**/*" .',
                        form.merge(),
                    ],
                    "artifact_paths": f"{forms.MERGED}/**/*",
                },
            ]
        name = "fleet-buildkite.yml" if len(parts) == 1 else f"fleet-buildkite-{number}.yml"
        texts[name] = forms.as_yaml({"steps": steps})
    return texts
