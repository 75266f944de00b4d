"""The common parts of all engines' forms: a shard's command, and the place of its report."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from pytest_vllm_gates.fleet.plan import batches
from pytest_vllm_gates.machine import known_gpus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_vllm_gates.fleet.shards import FleetPlan, Needs, Shard

REPORTS = "shards"
MERGED = "fleet-report"
GIB_MIB = 1024
HOME = "/tmp"  # noqa: S108 - of a container, which one shard has to itself
AS_USER = f"export PATH={HOME}/.local/bin:$PATH"
"""In a container without root, pip installs programs there."""
SHARED_MEMORY = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
"""A container has 64 MiB otherwise, and vLLM's ranks need more."""
SHARED_MEMORY_MOUNT = {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108


@dataclass(frozen=True)
class Form:
    """The values that are filled in."""

    plan_file: str
    """The path of the plan's file, from the project's folder."""
    most_jobs: int | None = None
    image: str = "python:3.12-slim"
    queue: str = "gpu"
    """The queue of Kueue or Buildkite, Slurm's partition, or the label of GitHub's GPU runners."""
    volume: str = "vllm-gates"
    """The volume claim of Kubernetes that all shards write to."""
    cpus: int = 4
    """The cores that a shard without a GPU requests."""
    memory_gib: int = 16
    """The memory that it requests."""
    install: str = ""
    """The command that installs; empty for the package from PyPI, with its store's extra."""
    store: str = ""
    """The store for the shards' reports, for engines whose machines share no folder; see
    `gates_store/`."""

    @property
    def installs(self) -> str:
        """The command that installs."""
        package = "'pytest-vllm-gates[store]'" if self.store else "pytest-vllm-gates"
        return self.install or f"pip install {package}"

    @property
    def reports_volume(self) -> dict[str, Any]:
        """Kubernetes' volume for reports: one for all shards or, with a store, one for each."""
        claim = {"persistentVolumeClaim": {"claimName": self.volume}}
        return {"emptyDir": {}} if self.store else claim

    @property
    def resources(self) -> dict[str, str]:
        """The resources that a shard without a GPU requests from Kubernetes."""
        return {"cpu": str(self.cpus), "memory": f"{self.memory_gib}Gi"}

    def shard(self, name: str, plan_file: str | None = None, reports: str = REPORTS) -> str:
        """Return the command that runs a shard. Its name may be a variable, and is not quoted."""
        plan = shlex.quote(plan_file or self.plan_file)
        return f"vllm-gates shard {plan} {name} {shlex.join(self.report_options(reports))}"

    def report_options(self, reports: str = REPORTS) -> list[str]:
        """Return the options for the place of a shard's report."""
        return ["--reports", reports, *(["--store", self.store] if self.store else [])]

    def merge(
        self, plan_file: str | None = None, reports: str = REPORTS, report: str = MERGED
    ) -> str:
        """Return the command that makes one verdict of all."""
        plan = shlex.quote(plan_file or self.plan_file)
        source = shlex.quote(self.store) if self.store else reports
        return f"vllm-gates merge {source} --plan {plan} --report {report}"


def alike(plan: FleetPlan, form: Form) -> Iterator[tuple[Needs, tuple[Shard, ...]]]:
    """Yield the shards that need the same devices, as many as an engine accepts at once."""

    def needs(shard: Shard) -> tuple[int, str, int]:
        return dataclasses.astuple(shard.needs)

    for _, group in itertools.groupby(sorted(plan.shards, key=needs), key=needs):
        for batch in batches([*group], form.most_jobs):
            yield batch[0].needs, batch


def affinity(needs: Needs) -> dict[str, Any]:
    """Return the affinity for Kubernetes' nodes with such devices; empty for any node.

    It uses the labels of NVIDIA's GPU feature discovery: a product has hyphens for spaces, memory
    is in MiB. https://github.com/NVIDIA/k8s-device-plugin/blob/main/docs/gpu-feature-discovery/README.md
    """
    rules: list[dict[str, Any]] = []
    if needs.gpu:
        products = [known_gpus.product_of(needs.gpu).replace(" ", "-")]
        rules.append({"key": "nvidia.com/gpu.product", "operator": "In", "values": products})
    if needs.gpu_memory_gib:
        mib = [str(needs.gpu_memory_gib * GIB_MIB - 1)]
        rules.append({"key": "nvidia.com/gpu.memory", "operator": "Gt", "values": mib})
    if not rules:
        return {}
    terms = {"nodeSelectorTerms": [{"matchExpressions": rules}]}
    wanted = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return {"affinity": {"nodeAffinity": wanted}}


def as_yaml(*documents: Any) -> str:
    """Return YAML with keys in their order, and texts of several lines as such."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def limit_minutes(shards: Iterable[Shard]) -> int:
    """Return a shard's limit in minutes: three times its duration, at least an hour."""
    return max(60, *(3 * shard.seconds // 60 for shard in shards))


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - its name there
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)
