"""Module names in the lists of a quantised checkpoint, matched as vLLM matches them.

vLLM 0.32: `is_layer_skipped` (exact names, substrings, shards of fused modules), ModelOpt's
`is_layer_excluded` (names, substrings, wildcards), compressed-tensors' `is_equal_or_regex_match`
(names, and patterns after `re:`), GPTQ's `dynamic` (`-:` and `+:` patterns).
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from pytest_vllm_gates.bounded import patterns
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PREFIXES = (
    "model.", "language_model.model.", "model.language_model.", "language_model.", "backbone.", "",
)  # fmt: skip
# A module's other names: in older checkpoints, or in vLLM's fused modules.
OTHERS = {
    "self_attn.q_proj": ("self_attn.qkv_proj",),
    "self_attn.k_proj": ("self_attn.qkv_proj",),
    "self_attn.v_proj": ("self_attn.qkv_proj",),
    "gate_proj": ("gate_up_proj",),
    "up_proj": ("gate_up_proj",),
    "linear_attn.in_proj_qkv": ("linear_attn.in_proj_qkvz",),
    "linear_attn.in_proj_z": ("linear_attn.in_proj_qkvz",),
    "mlp.experts": ("mlp.experts.0.gate_proj", "block_sparse_moe.experts", "feed_forward.experts",
                    "block_sparse_moe.experts.0.w1"),
    "mixer.experts": ("mixer.experts.0.up_proj",),
}  # fmt: skip


def spelled(name: str) -> tuple[str, ...]:
    """Return the names that checkpoints use for a module of the language model."""
    names = [name]
    for own, others in OTHERS.items():
        if name.endswith(own):
            names += [name.removesuffix(own) + other for other in others]
    return tuple(prefix + each for prefix in PREFIXES for each in names)


def exactly(names: Iterable[str], listed_names: Iterable[str]) -> bool:
    """Return whether a name is listed; experts are listed if a list names one of them."""
    listed = set(listed_names)
    names = tuple(names)
    if not listed.isdisjoint(names):
        return True
    experts = [name for name in names if name.startswith("model.") and name.endswith(".experts")]
    return any(name in pattern for name in experts for pattern in listed if "experts" in pattern)


def contains(names: Iterable[str], entries: Iterable[str]) -> bool:
    """Return whether a name contains an entry of the list.

    Experts are one module here, as in vLLM: `mlp.experts` does not contain `gate`.
    """
    entries = tuple(entries)
    return any(entry and entry in name for name in _modules(names) for entry in entries)


def _modules(names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if ".experts." not in name)


def by_wildcard(names: Iterable[str], entries: Iterable[str]) -> bool:
    """Return whether ModelOpt's list names it: by name, by a part of it, or with wildcards."""
    names, entries = tuple(names), tuple(entries)
    if exactly(names, entries) or contains(names, entries):
        return True
    wild = [entry for entry in entries if any(sign in entry for sign in "*?[")]
    return any(fnmatchcase(name, entry) for name in _modules(names) for entry in wild)


def by_expression(names: Iterable[str], entries: Iterable[str]) -> bool:
    """Return whether compressed-tensors' list names it: by name, or by a pattern after `re:`."""
    names, entries = tuple(names), tuple(entries)
    if not set(entries).isdisjoint(names):
        return True
    expressions = [entry[3:] for entry in entries if entry.startswith("re:")]
    return any(matches(expression, name) for expression in expressions for name in names)


def by_component(names: Iterable[str], entries: Iterable[str]) -> bool:
    """Return whether bitsandbytes' list names it: a component, or the name's beginning."""
    listed = set(entries)
    return any(not listed.isdisjoint(_beginnings_and_components(name)) for name in names)


def _beginnings_and_components(name: str) -> Iterator[str]:
    components = name.split(".")
    yield from components
    yield from (".".join(components[:count]) for count in range(1, len(components) + 1))


def matches(expression: str, name: str) -> bool:
    """Return whether an expression matches a name's beginning.

    Raises `UserError` for an expression that is invalid or takes too long.
    """
    try:
        found = patterns.checked(expression).search(name)
    except (ValueError, patterns.SlowPatternError) as error:
        raise UserError(f"config.json: a pattern of the quantisation: {error}") from error
    return found is not None and found.start() == 0
