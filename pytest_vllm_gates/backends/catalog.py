"""The attention backends of vLLM, and which of them a machine, model and version support."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from packaging.specifiers import SpecifierSet
from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

FILE = data.FOLDER / "backends.toml"
Layers = Literal["attention", "MLA", "sparse MLA", "GDN"]


class Backend(toml.Record):
    """One backend, the flags that select it and its requirements."""

    name: toml.Name
    device: Literal["cpu", "cuda"]
    layers: Layers
    serve: dict[str, Any]
    majors: tuple[int, ...] = ()
    """Major compute capabilities; empty for any."""
    package: str = ""
    """A distribution that the lane must have."""
    needs_amx: bool = False
    versions: str = Field(default=">=0.27", pattern=r"^[\d<>=.,!]+$")
    """Versions of vLLM that accept its name."""
    reference: toml.Sentence


class Backends(toml.Record):
    """The file."""

    backends: tuple[Backend, ...]


@dataclass(frozen=True)
class Platform:
    """The platform of a lane, as far as backends depend on it."""

    device: str
    version: str | None
    packages: Collection[str]
    major: int | None = None
    """The GPU's major compute capability."""
    amx: bool = False


def load() -> tuple[Backend, ...]:
    """Return the backends that ship."""
    return toml.load(FILE, Backends).backends


def layers_of(config: Mapping[str, Any]) -> frozenset[Layers]:
    """Return the kinds of layers that a checkpoint's config.json describes."""
    inner = config.get("text_config")
    text = {**config, **(inner if isinstance(inner, dict) else {})}
    if text.get("kv_lora_rank"):
        return frozenset({"sparse MLA" if text.get("index_topk") else "MLA"})
    if text.get("linear_num_key_heads"):
        return frozenset({"attention", "GDN"})
    return frozenset({"attention"})


def sorted_out(
    backends: Iterable[Backend], platform: Platform, layers: Collection[str]
) -> tuple[tuple[Backend, ...], dict[str, str]]:
    """Return the backends to boot, and why others of the same device and layers are left out."""
    kept, left_out = [], {}
    for backend in backends:
        if backend.device != platform.device or backend.layers not in layers:
            continue
        why = _why_not(backend, platform)
        if why:
            left_out[backend.name] = why
        else:
            kept.append(backend)
    return tuple(kept), left_out


def _why_not(backend: Backend, platform: Platform) -> str:
    if platform.version and not SpecifierSet(backend.versions).contains(
        platform.version, prereleases=True
    ):
        return f"vLLM {platform.version} does not have it, {backend.versions} do"
    if backend.majors and platform.major is not None and platform.major not in backend.majors:
        known = ", ".join(map(str, backend.majors))
        return f"it is for compute capability {known}, and this GPU has {platform.major}"
    if backend.needs_amx and not platform.amx:
        return "the processor has no AMX"
    if backend.package and backend.package not in platform.packages:
        return f"{backend.package} is not installed"
    return ""
