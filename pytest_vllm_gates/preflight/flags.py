"""Checks the flags' values, and reads them as vLLM does."""

from __future__ import annotations

import contextlib
import re
from decimal import Decimal
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog import releases, toml
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan import device
from pytest_vllm_gates.preflight.types import CheckResult, fails, ok

if TYPE_CHECKING:
    from pytest_vllm_gates.preflight.types import Situation

COUNTS = (
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "nnodes",
    "max_num_seqs", "max_num_batched_tokens", "block_size",
)  # fmt: skip
UTILIZATION = "gpu_memory_utilization"
LENGTH = "max_model_len"
FIT = -1
"""The `max_model_len` that vLLM fits to the available memory."""
# vLLM reads 32k as 32 000 and 32K as 32 768.
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
READABLE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgG]?)")

MISSPELLED = 0.8
"""Likeness of a misspelled flag: among two hundred flags, a less similar name is another flag."""


def flags(situation: Situation) -> CheckResult:
    """The lane's vLLM must know the flags; counts are positive integers, a share is in (0, 1]."""
    if unknown := _unknown(situation):
        return unknown
    wrong = [
        f"{name} = {situation.flag(name)!r} is not a positive integer"
        for name in COUNTS
        if situation.flag(name) is not None and _count(situation.flag(name)) is None
    ]
    if _share(situation.flag(UTILIZATION, 0.5)) is None:
        wrong.append(
            f"{UTILIZATION} = {situation.flag(UTILIZATION)!r} is not a share above 0, up to 1"
        )
    if length(situation) is None and situation.flag(LENGTH) is not None:
        wrong.append(
            f"{LENGTH} = {situation.flag(LENGTH)!r} is not a number of tokens (32768, 32k, or auto)"
        )
    tokens, requests = count(situation, "max_num_batched_tokens"), count(situation, "max_num_seqs")
    if tokens is not None and requests is not None and tokens < requests:
        wrong.append(
            f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs "
            f"({requests})"
        )
    if wrong:
        return fails(
            "; ".join(wrong),
            cause="a typing error in [serve] of the lane or the family; vLLM would refuse to start",
            fix="correct the value where it is set",
        )
    return ok("every checked value is possible")


def _unknown(situation: Situation) -> CheckResult | None:
    """Return the failure for flags that this vLLM does not know; None if it knows all.

    A plugin of vLLM may add flags: then nothing is judged.
    """
    if situation.bundle.plugins:
        return None
    version = situation.bundle.vllm
    names = releases.unknown(situation.known_flags, situation.serve)
    if not names:
        return None
    remarks = {name: releases.remark(name, version) for name in names}
    words = [f"{name} ({remark})" if remark else name for name, remark in remarks.items()]
    guesses = {
        name: toml.nearest(name, situation.known_flags, MISSPELLED)
        for name, remark in remarks.items()
        if not remark
    }
    return fails(
        f"vLLM {version or 'of this lane'} has no flag {', '.join(words)}",
        cause="the flags are for another release, or one is misspelled; vLLM would exit with "
        "'unrecognized arguments'",
        fix="; ".join(
            _fix(name, releases.name_in(name, version) if version else None, guesses.get(name))
            for name in names
        ),
    )


def _fix(name: str, other: str | None, guess: str | None) -> str:
    if other:
        return f"replace {name} by {other} in [serve]"
    if guess:
        return f"did you mean {guess!r} instead of {name!r}?"
    return f"remove {name} from [serve] of the lane or the family"


def count(situation: Situation, name: str, default: int | None = None) -> int | None:
    """Return a flag that counts something; the default if it is not set or not valid."""
    value = _count(situation.flag(name))
    return default if value is None else value


def share(situation: Situation) -> float | None:
    """Return the share of memory that vLLM uses: as set, else its default; None if unknown.

    If vLLM is not installed yet, the default is that of the version in the lane's lock.
    """
    bundle = situation.bundle
    if (asked := _share(situation.flag(UTILIZATION))) or bundle.utilization:
        return asked or bundle.utilization
    with contextlib.suppress(UserError):
        return device.usual_utilization(bundle.vllm) if bundle.vllm else None
    return None


def length(situation: Situation) -> int | None:
    """Return the requested length in tokens, `FIT`, or None if none is set or it is not valid."""
    value = situation.flag(LENGTH)
    if value in (FIT, "auto", "-1"):
        return FIT
    if isinstance(value, bool) or (isinstance(value, int) and value < 1):
        return None
    match = READABLE.fullmatch(str(value)) if isinstance(value, int | str) else None
    return int(Decimal(match[1]) * UNITS[match[2]]) if match else None


def _count(value: object) -> int | None:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _share(value: object) -> float | None:
    try:
        fraction = float(str(value))
    except ValueError:
        return None
    return fraction if 0 < fraction <= 1 else None
