"""The repairs of the CPU lanes' overlay: what each changes, and when it does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.environment import environment, overlay
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

OVERLAY = lanes.SHIPPED / "cpu-overlay"

TORCH = """
class _Operators:
    pass

class ops:
    torchvision = _Operators()

class library:
    class Library:
        def __init__(self, name, kind):
            self.at = name, kind
        def define(self, schema):
            print(*self.at, "defines", schema.partition("(")[0])
"""

WRONG_WITHOUT_RIGHT_WITH = """
import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding

draw = torch.Generator().manual_seed(0)
state = torch.get_rng_state()
with set_current_vllm_config(VllmConfig()):
    for neox in (True, False):
        for shape in ((5, 128), (5, 2, 64)):
            rotary = RotaryEmbedding(64, 64, 64, 10000.0, neox, torch.float32)
            query, key = (torch.randn(shape, generator=draw) for _ in range(2))
            wanted = rotary.forward_native(torch.arange(5), query.clone(), key.clone())
            found = rotary.forward_cpu(torch.arange(5), query.clone(), key.clone())
            off = max(float((one - other).abs().max()) for one, other in zip(wanted, found))
            print("neox" if neox else "gptj", len(shape), "right" if off < 0.01 else "wrong")
print("untouched" if torch.equal(state, torch.get_rng_state()) else "the generator was used")
"""

# A prompt of one token, as a model's projection leaves it: cut from a wider row.
ONE_TOKEN = """
import torch
import vllm.platforms
from vllm import _custom_ops
vllm.platforms.current_platform.import_kernels()
if not hasattr(torch.ops._C, "causal_conv1d_weight_pack"):
    print("no such kernel")
    raise SystemExit

draw = torch.Generator().manual_seed(0)
weight = torch.randn(64, 4, generator=draw).bfloat16()
for tokens in (2, 1):
    row = torch.randn(tokens, 128, generator=draw).bfloat16()[:, :64]
    states = torch.zeros(2, 3, 64, dtype=torch.bfloat16).transpose(1, 2)
    wanted = torch.nn.functional.pad(row.t().float(), (3, 0))[None]
    wanted = torch.nn.functional.conv1d(wanted, weight.float()[:, None], groups=64)[0]
    try:
        found = _custom_ops.causal_conv1d_fwd_cpu(
            row.contiguous().transpose(0, 1),  # of one token: no copy
            _custom_ops.causal_conv1d_weight_pack(weight), None, states,
            torch.tensor([0, tokens], dtype=torch.int32), torch.tensor([1], dtype=torch.int32),
            torch.tensor([False]), False, True,  # no activation, weights packed
        )
    except RuntimeError as error:
        print(tokens, str(error).splitlines()[0])
    else:
        print(tokens, "right" if torch.allclose(found.float(), wanted, atol=0.1) else "wrong")
"""
# Two prompts of 70 and 130 tokens, five times: the kernel's own answers and states come first.
DELTA_RULE = """
import sys, types
import torch
from vllm import _custom_ops
from vllm_gates_repairs import slow_bfloat16

slow_bfloat16._is_slow = lambda torch: True
kernel = getattr(_custom_ops.chunk_gated_delta_rule_cpu, "__wrapped__", None)
kernel = kernel or _custom_ops.chunk_gated_delta_rule_cpu
calls = []
def counted(**given):
    calls.append(1)
    out, states = kernel(**given)
    if sys.argv[1:] == ["wrong"]:
        given["initial_state"] *= 2
    return out, states
module = types.SimpleNamespace(torch=torch, chunk_gated_delta_rule_cpu=counted)
slow_bfloat16._replace_delta_rule(module)

draw = torch.Generator().manual_seed(0)
def drawn(*shape): return torch.randn(1, 200, *shape, generator=draw)
given = {
    "query": drawn(2, 128).bfloat16(), "key": drawn(2, 128).bfloat16(),
    "value": drawn(4, 128).bfloat16(), "g": -drawn(4).abs(), "beta": drawn(4).sigmoid().bfloat16(),
    "output_final_state": True, "cu_seqlens": torch.tensor([0, 70, 200], dtype=torch.int32),
    "head_first": False, "use_qk_l2norm_in_kernel": True,
    "initial_state_indices": torch.tensor([3, 1], dtype=torch.int32),
}
before = torch.randn(4, 4, 128, 128, generator=draw) / 10
for call in range(5):
    states = before.clone()
    out, _ = module.chunk_gated_delta_rule_cpu(**given, initial_state=states)
    if not call:
        wanted, after = out, states
    near = all(
        slow_bfloat16._close(one, other) for one, other in ((out, wanted), (states, after))
    )
    print("kernel" if len(calls) == call + 1 else "transformers", "right" if near else "wrong")
"""
PRODUCTS = """
import torch
import vllm.model_executor.layers.utils
functional = torch.nn.functional
draw = torch.Generator().manual_seed(0)
x, weight, bias = (torch.randn(*shape, generator=draw) for shape in ((7, 64), (32, 64), (32,)))
for kind in (torch.bfloat16, torch.float32):
    found = functional.linear(x.to(kind), weight.to(kind), bias.to(kind))
    wanted = torch.addmm(bias, x.to(kind).float(), weight.to(kind).float().t())
    near = torch.allclose(found.float(), wanted, rtol=0.01, atol=0.1)
    print(found.dtype, "right" if near else "wrong")
x, weight = (torch.randn(*shape, generator=draw).bfloat16() for shape in ((1, 8, 9), (8, 1, 4)))
print(tuple(functional.conv1d(x, weight, None, padding=0, groups=8).shape))
slow = not torch.ops.mkldnn._is_mkldnn_bf16_supported()
print(slow == hasattr(functional.linear, "__wrapped__"))
"""
# A model runner as vLLM's, with a generator that offsets do not move.
SEEDED = """
import sys, types

class Generator:
    device = types.SimpleNamespace(type="cpu")
    drawn = 0
    def get_state(self): return self.drawn
    def set_state(self, state): self.drawn = state
    def get_offset(self): raise RuntimeError("CPU Generator does not use offset")

class GPUModelRunner:
    def __init__(self, discarded):
        generators = {at: Generator() for at in range(len(discarded))}
        self.input_batch = types.SimpleNamespace(generators=generators, num_reqs=len(discarded))
        self.discard_request_mask = types.SimpleNamespace(np=discarded)
    def _sample(self, logits):
        for one in self.input_batch.generators.values():
            one.drawn += 1
        return logits
    def _bookkeeping_sync(self, output):
        for at, thrown_away in enumerate(self.discard_request_mask.np):
            generator = self.input_batch.generators.get(at)
            if thrown_away and generator:
                generator.get_offset()
        return output
"""


def run(
    python: Path | str, code: str, *path: Path, check: bool = True, argv: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run `code` with these folders first on the import path."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONWARNINGS": ""}
    env |= {"VLLM_LOGGING_LEVEL": "ERROR", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [str(python), "-c", code, *argv],
        env=env,
        check=check,
        capture_output=True,
        text=True,
        cwd="/",
    )


def module(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return folder


def torchvision(folder: Path, extension: str = "") -> Path:
    module(folder, "torch.py", TORCH)
    module(folder, "torchvision/__init__.py", "import torchvision.extension\n")
    return module(folder, "torchvision/extension.py", extension)


def test_every_repair_is_listed_with_its_summary() -> None:
    assert [(repair.name, repair.summary) for repair in overlay.repairs(OVERLAY)] == [
        (
            "base_beside_adapters",
            "Keeps LoRA adapters out of the answers of their base model on vLLM's CPU backend.",
        ),
        (
            "one_process",
            "Keeps the one rank of a server on the CPU in the engine's process, as on a GPU.",
        ),
        (
            "one_token_prompts",
            "Lets a Gated DeltaNet model read a prompt of one token on vLLM's CPU backend.",
        ),
        ("rotary_embedding", "Gives MLA models the right positions on vLLM's CPU backend."),
        (
            "router_dtype",
            "Lets routers of experts compute in float32 on vLLM's CPU backend.",
        ),
        (
            "seeded_prompts",
            "Lets a seeded request have its prompt read in several steps on vLLM's CPU backend.",
        ),
        (
            "sigmoid_routing",
            "Lets mixtures of experts with sigmoid routing and no groups serve on the CPU.",
        ),
        (
            "slow_bfloat16",
            "Multiplies bfloat16 matrices in float32 on processors that have no instructions for "
            "bfloat16.",
        ),
        (
            "torchvision_operators",
            "Lets torchvision's CUDA wheel be imported beside a CPU torch.",
        ),
    ]
    assert overlay.repairs(None) == ()


def test_a_repair_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    module(tmp_path, "broken.py", "def (")
    with pytest.raises(UserError, match=r"broken\.py: not a readable Python file"):
        overlay.repairs(tmp_path)


@pytest.mark.parametrize("part", ["Repairs: ", "Versions: ", "Found by: ", "Idle "])
def test_every_repair_documents_its_cause_and_scope(part: str) -> None:
    for file in OVERLAY.glob("vllm_gates_repairs/[!_]*.py"):
        assert f"\n{part}" in file.read_text(), file.name


def test_the_overlay_is_silent_and_imports_nothing_heavy() -> None:
    code = "import sys; print([name for name in ('torch', 'vllm') if name in sys.modules])"
    result = run(sys.executable, code, OVERLAY)
    assert (result.stdout, result.stderr) == ("[]\n", "")


def test_missing_operators_are_declared_after_torchvision_looked(
    tmp_path: Path,
) -> None:
    result = run(sys.executable, "import torchvision", OVERLAY, torchvision(tmp_path))
    assert result.stdout.splitlines() == [
        "torchvision FRAGMENT defines nms",
        "torchvision FRAGMENT defines qnms",
    ]


def test_operators_that_exist_are_left_alone(tmp_path: Path) -> None:
    loads = "import torch\nfor name in ('nms', 'qnms'): setattr(torch.ops.torchvision, name, 1)\n"
    result = run(sys.executable, "import torchvision", OVERLAY, torchvision(tmp_path, loads))
    assert result.stdout == ""


def test_finding_a_module_without_import_keeps_the_repair(tmp_path: Path) -> None:
    code = "import importlib.util as u; u.find_spec('torchvision'); import torchvision"
    module(torchvision(tmp_path), "torchvision/__init__.py", (
        "import importlib.util as u\nu.find_spec('torchvision.extension')\n"
        "import torchvision.extension\n"
    ))  # fmt: skip
    result = run(sys.executable, code, OVERLAY, tmp_path)
    assert len(result.stdout.splitlines()) == 2


def test_repair_stops_watching_after_its_import(tmp_path: Path) -> None:
    code = (
        "import sys; before = len(sys.meta_path); import torchvision; "
        "print(before - len(sys.meta_path))"
    )
    result = run(sys.executable, code, OVERLAY, torchvision(tmp_path))
    assert result.stdout.splitlines()[-1] == "1"


def test_the_environments_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    module(tmp_path, "sitecustomize.py", "print('own', __file__)\n")
    result = run(sys.executable, "import sitecustomize", OVERLAY, tmp_path)
    assert result.stdout == f"own {tmp_path}/sitecustomize.py\n"


def test_repaired_kernel_is_used_again(tmp_path: Path) -> None:
    """The guard tests the kernel itself, not the version."""
    package = "vllm/model_executor/layers/rotary_embedding"
    for folder in ("vllm", "vllm/model_executor", "vllm/model_executor/layers", package):
        module(tmp_path, f"{folder}/__init__.py", "")
    module(
        tmp_path,
        "torch.py",
        """
float32 = "float32"
class compiler:
    is_compiling = staticmethod(lambda: False)
class Tensor:
    def __init__(self, shape): self.shape = shape
    def dim(self): return len(self.shape)
    def sin(self): return self
    def view(self, *shape): return Tensor(shape)
    def to(self, dtype): return self
    def clone(self): return self
    def float(self): return self
    dtype = device = None
def arange(count, device=None): return Tensor((count,))
def allclose(one, other, rtol, atol): return one.word == other.word
""",
    )
    module(
        tmp_path,
        f"{package}/base.py",
        """
import torch
calls = []
def answer(word):
    found = torch.Tensor((2, 2, 4)); found.word = word
    return found, found
class RotaryEmbedding:
    head_size = 4
    def __init__(self, style, mended): self.is_neox_style, self.mended = style, mended
    def forward_native(self, positions, query, key=None):
        calls.append("native"); return answer("right")
    def forward_cpu(self, positions, query, key=None):
        calls.append("kernel"); return answer("right" if self.mended else "wrong")
""",
    )
    code = """
import torch
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding, calls
flat, deep = torch.Tensor((3, 8)), torch.Tensor((3, 2, 4))
for style, mended in ((True, True), (False, False)):
    for tensor in (flat, deep, deep):
        RotaryEmbedding(style, mended).forward_cpu(None, tensor, tensor)
        print(style, *calls); calls.clear()
"""
    assert run(sys.executable, code, OVERLAY, tmp_path).stdout.splitlines() == [
        "True kernel",
        "True native kernel kernel",
        "True kernel",
        "False kernel",
        "False native kernel native",
        "False native",
    ]


@pytest.fixture(
    scope="module", params=["cpu", pytest.param("cpu-previous", marks=pytest.mark.slow)]
)
def python(request: pytest.FixtureRequest) -> Path:
    lane = lanes.load(request.param, Path("/nowhere"))
    prepared = environment.prepare(lane, cache=files.default_cache(), progress=print)
    assert prepared.python is not None
    return prepared.python


@pytest.mark.real
def test_real_torchvision_is_imported_only_with_the_overlay(python: Path) -> None:
    code = "import torchvision.transforms.v2.functional"
    without = run(python, code, check=False)
    if "nms does not exist" not in without.stderr:
        pytest.skip("this torchvision is a CPU build and needs no repair")
    assert run(python, code, OVERLAY).stderr == ""


@pytest.mark.real
def test_real_rotary_embeddings_are_right_with_the_overlay(python: Path, tmp_path: Path) -> None:
    repaired = run(python, WRONG_WITHOUT_RIGHT_WITH, OVERLAY).stdout.splitlines()
    assert repaired == ["neox 2 right", "neox 3 right", "gptj 2 right", "gptj 3 right", "untouched"]
    # Without this one repair: a file of its name that does nothing takes its place.
    only = tmp_path / "overlay"
    for file in OVERLAY.rglob("*.py"):
        module(only, str(file.relative_to(OVERLAY)), file.read_text())
    module(only, "vllm_gates_repairs/rotary_embedding.py", "def arm() -> None: ...\n")
    defective = run(python, WRONG_WITHOUT_RIGHT_WITH, only).stdout.splitlines()
    assert defective[:4] == ["neox 2 right", "neox 3 wrong", "gptj 2 right", "gptj 3 wrong"]


@pytest.mark.real
def test_real_convolutions_take_one_token_with_the_overlay(
    python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = run(python, ONE_TOKEN, OVERLAY).stdout.splitlines()
    if lines == ["no such kernel"]:
        pytest.skip("vLLM has no kernel for convolutions for this machine's processor")
    assert lines == ["2 right", "1 right"]
    monkeypatch.setenv("VLLM_GATES_WITHOUT_REPAIRS", "one_token_prompts")
    assert run(python, ONE_TOKEN, OVERLAY).stdout.splitlines() == [
        "2 right",
        "1 causal_conv1d_fwd_cpu: expect x to be transposed.",
    ]


@pytest.mark.real
def test_real_bfloat16_products_keep_their_values_and_type(python: Path) -> None:
    assert run(python, PRODUCTS, OVERLAY).stdout.splitlines() == [
        "torch.bfloat16 right",
        "torch.float32 right",
        "(1, 8, 6)",
        "True",
    ]


@pytest.mark.real
def test_real_delta_rule_goes_on_in_transformers_only_where_both_agree(python: Path) -> None:
    lines = run(python, DELTA_RULE, OVERLAY).stdout.splitlines()
    assert lines == ["kernel right"] * 3 + ["transformers right"] * 2
    wrong = run(python, DELTA_RULE, OVERLAY, argv=["wrong"]).stdout.splitlines()
    assert wrong == ["kernel right"] * 5  # the same as itself: the gates see what it does


def test_one_module_is_watched_for_two_repairs(tmp_path: Path) -> None:
    module(tmp_path, "watched.py", "print('imported')\n")
    code = """
from vllm_gates_repairs._after_import import after_import
for name in ("first", "second"):
    after_import("watched", lambda module, name=name: print(name, module.__name__))
import watched
"""
    lines = run(sys.executable, code, OVERLAY, tmp_path).stdout.splitlines()
    assert lines == ["imported", "first watched", "second watched"]


def test_unused_random_draws_are_undone(tmp_path: Path) -> None:
    for folder in ("vllm", "vllm/v1", "vllm/v1/worker"):
        module(tmp_path, f"{folder}/__init__.py", "")
    module(tmp_path, "vllm/v1/worker/gpu_model_runner.py", SEEDED)
    code = """
from vllm.v1.worker.gpu_model_runner import GPUModelRunner
runner = GPUModelRunner([True, False])
print(runner._sample(1), runner._bookkeeping_sync(2))
print([one.drawn for one in runner.input_batch.generators.values()])
"""
    assert run(sys.executable, code, OVERLAY, tmp_path).stdout.splitlines() == ["1 2", "[0, 1]"]
    without_overlay = run(sys.executable, code, tmp_path, check=False)
    assert "CPU Generator does not use offset" in without_overlay.stderr
