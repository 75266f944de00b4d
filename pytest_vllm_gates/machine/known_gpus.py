"""The table of known GPUs: their memory as programs get it, and their compute capability."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog.toml import nearest
from pytest_vllm_gates.errors import UserError

TABLE = data.FOLDER / "gpus.toml"
MIB = 2**20


@dataclass(frozen=True)
class KnownGpu:
    """A kind of GPU; `usable_mib` is what programs can get, and `source` where that is from."""

    name: str
    product: str
    capability: str
    sold_as: str
    usable_mib: int
    source: str
    estimated: bool = False

    @property
    def usable_bytes(self) -> int:
        """The memory that programs can get, in bytes."""
        return self.usable_mib * MIB

    @property
    def blackwell(self) -> bool:
        """Whether it is of the 10.x generation."""
        return self.capability.startswith("10.")

    @property
    def a100(self) -> bool:
        """Whether vLLM keeps small batches for it in spite of its memory."""
        return "A100" in self.product


@cache
def table() -> dict[str, KnownGpu]:
    """Return the known GPUs by their short names."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {name: KnownGpu(name=name, **row) for name, row in rows.items()}


def named(name: str) -> KnownGpu:
    """Return a GPU by its short or its product name; raises `UserError` for an unknown one."""
    known = {_folded(short): gpu for short, gpu in table().items()}
    known |= {_folded(gpu.product): gpu for gpu in table().values()}
    found = known.get(_folded(name))
    if found is None:
        guess = nearest(name, table())
        hint = f"; did you mean {guess!r}?" if guess else ""
        raise UserError(
            f"--gpu {name!r} is not in the table{hint}\nknown: {', '.join(table())}; for another, "
            "give the memory that programs can get: --gpu-memory 79.1GiB"
        )
    return found


def product_of(name: str) -> str:
    """Return the product of a short name, or the name itself if the table does not have it."""
    return next(
        (gpu.product for gpu in table().values() if _folded(gpu.name) == _folded(name)), name
    )


def capability_of(product: str) -> str | None:
    """Return the compute capability of a product as its driver names it; None for an unknown."""
    folded = _folded(product)
    # The longest name first: "h100nvl" before "h100".
    for gpu in sorted(table().values(), key=lambda gpu: -len(gpu.name)):
        if _folded(gpu.name) in folded or _folded(gpu.product) in folded:
            return gpu.capability
    return None


def _folded(name: str) -> str:
    return re.sub(r"nvidia|geforce|tesla|[^a-z0-9]", "", name.lower())
