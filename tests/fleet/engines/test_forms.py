"""The plan in each engine's form: valid by its schema, within its limits, every shard in it."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml

from fleet.made_fleets import plan_of, served
from pytest_vllm_gates.fleet.durations import facts
from pytest_vllm_gates.fleet.engines import (
    argo,
    buildkite,
    github,
    gitlab,
    k8s,
    loop,
    ray,
    slurm,
    xdist,
)
from pytest_vllm_gates.fleet.engines.form import Form
from pytest_vllm_gates.fleet.shards import Needs

if TYPE_CHECKING:
    from pathlib import Path

ENGINES = [argo, buildkite, github, gitlab, k8s, loop, ray, slurm, xdist]
PLAN = plan_of(
    served("glm"),
    served("kimi"),
    served("glm", "cuda", needs=Needs(2, "h100", 70)),
    served("qwen3.5"),
    features=["ngram"],
)
NAMES = [shard.name for shard in PLAN.shards]
FORM = Form("fleet.json")
SCHEMAS = {github: "github-workflows", gitlab: "gitlab-ci", buildkite: "buildkite"}


def text_of(engine: Any, form: Form = FORM) -> str:
    (text,) = engine.files(PLAN, form).values()
    return str(text)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__.rpartition(".")[2])
def test_every_shard_is_in_it(engine: Any) -> None:
    text = "\n".join(engine.files(PLAN, FORM).values())
    for name in NAMES:
        assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text), name
    assert "vllm-gates merge" in text or "'merge', 'shards'" in text or engine is k8s


@pytest.mark.parametrize(("engine", "schema"), SCHEMAS.items(), ids=SCHEMAS.values())
def test_it_is_valid_by_the_published_schema(engine: Any, schema: str, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yml"
    path.write_text(text_of(engine), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_jobs_of_kubernetes_have_the_types_of_its_api() -> None:
    config, *jobs = yaml.safe_load_all(text_of(k8s))
    assert config["kind"] == "ConfigMap"
    assert all(isinstance(value, str) for value in config["data"].values())
    for job in jobs:
        jsonschema.validate(job, JOB)
    by_gpus = [job["spec"]["template"]["spec"]["containers"][0] for job in jobs]
    assert [container["resources"]["limits"].get("nvidia.com/gpu") for container in by_gpus] == [
        None, "2",
    ]  # fmt: skip
    shards = [container["env"][0]["value"].split() for container in by_gpus]
    assert sorted(itertools.chain(*shards)) == sorted(NAMES)
    assert [job["spec"]["completions"] for job in jobs] == list(map(len, shards))
    (term,) = jobs[1]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H100-80GB-HBM3"]},
        {"key": "nvidia.com/gpu.memory", "operator": "Gt", "values": ["71679"]},
    ]
    assert "affinity" not in jobs[0]["spec"]["template"]["spec"]
    assert all(job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpu" for job in jobs)


# batch/v1 Job, as far as it is used: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/
COUNT = {"type": "integer", "minimum": 0}
JOB = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "batch/v1"},
        "kind": {"const": "Job"},
        "metadata": {
            "properties": {
                "name": {"pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63},
                "labels": {"additionalProperties": {"type": "string", "maxLength": 63}},
            }
        },
        "spec": {
            "additionalProperties": False,
            "properties": {
                "completionMode": {"const": "Indexed"},
                "completions": {**COUNT, "maximum": 100_000},
                "parallelism": COUNT,
                "backoffLimitPerIndex": COUNT,
                "maxFailedIndexes": COUNT,
                "template": {
                    "properties": {
                        "spec": {
                            "required": ["containers", "restartPolicy"],
                            # backoffLimitPerIndex requires it.
                            "properties": {"restartPolicy": {"const": "Never"}},
                        }
                    }
                },
            },
        },
    },
}


def test_no_upload_of_github_and_buildkite_is_beyond_the_limit() -> None:
    plan = plan_of(*(served(f"family{number}") for number in range(600)))
    limits = facts().jobs
    (workflow,) = github.files(plan, Form("fleet.json", limits["github"])).values()
    jobs = yaml.safe_load(workflow)["jobs"]
    sizes = [len(job["strategy"]["matrix"]["shard"]) for job in jobs.values() if "strategy" in job]
    assert sizes == [256, 256, 88]
    assert jobs["merge"]["needs"] == ["shards-1", "shards-2", "shards-3"]
    uploads = buildkite.files(plan, Form("fleet.json", limits["buildkite"]))
    assert [*uploads] == ["fleet-buildkite-1.yml", "fleet-buildkite-2.yml"]
    assert [len(yaml.safe_load(text)["steps"]) for text in uploads.values()] == [498, 104]


def test_gpus_are_requested_if_a_server_needs_them() -> None:
    jobs = yaml.safe_load(text_of(github))["jobs"]
    assert [job["runs-on"] for job in jobs.values()] == [
        "ubuntu-24.04", ["self-hosted", "linux", "gpu"], "ubuntu-24.04",
    ]  # fmt: skip
    scripts = slurm.files(PLAN, FORM)
    assert [*scripts] == ["fleet-1.sbatch", "fleet-2.sbatch"]
    assert "--gres" not in scripts["fleet-1.sbatch"]
    assert "# 2 h100s with 70 GiB: " in scripts["fleet-2.sbatch"]
    assert "#SBATCH --gres=gpu:2\n" in scripts["fleet-2.sbatch"]
    templates = yaml.safe_load(text_of(argo))["spec"]["templates"]
    assert templates[0]["container"]["resources"] == {"limits": {"cpu": "4", "memory": "16Gi"}}
    assert templates[1]["container"]["resources"] == {"limits": {"nvidia.com/gpu": "2"}}


@pytest.mark.parametrize("number", range(2))
def test_an_index_picks_its_shard(number: int, tmp_path: Path) -> None:
    """Run one script several times, each time with another index, as Kubernetes and Slurm do."""
    (tmp_path / "pip").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "vllm-gates").write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
    for path in tmp_path.iterdir():
        path.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    _, job, *_ = yaml.safe_load_all(text_of(k8s))
    container = job["spec"]["template"]["spec"]["containers"][0]
    wanted = container["env"][0]["value"].split()[number]
    indexed = {**env, "SHARDS": container["env"][0]["value"], "JOB_COMPLETION_INDEX": str(number)}
    done = subprocess.run(
        container["command"], env=indexed, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"shard /plan/fleet.json {wanted} --reports /store\n"
    script = slurm.files(PLAN, FORM)["fleet-1.sbatch"]
    done = subprocess.run(
        ["bash", "-c", script], env={**env, "SLURM_ARRAY_TASK_ID": str(number)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"shard fleet.json {wanted} --reports shards\n"


def test_a_loop_runs_every_shard_then_merges_whatever_became_of_them(tmp_path: Path) -> None:
    program = tmp_path / "vllm-gates"
    program.write_text('#!/bin/sh\necho "$@"\n[ "$1" = merge ] && exit 6\nexit 3\n', "utf-8")
    program.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", text_of(loop)], env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    *shards, merged = done.stdout.splitlines()
    assert shards == [f"shard fleet.json {name} --reports shards" for name in NAMES]
    assert merged == "merge shards --plan fleet.json --report fleet-report"
    assert done.returncode == 6


@pytest.mark.parametrize("engine", [ray, xdist])
def test_program_is_python(engine: Any) -> None:
    compile(text_of(engine), "program.py", "exec")
