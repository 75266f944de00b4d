"""The quantised modules of a checkpoint and their precision, read as vLLM reads them.

Each method has its own keys and matches names in its own way: see `module_names` for the matching
and `precision` for the formats. Embeddings, heads, norms, routers and the vision tower keep the
model's type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded.limits import excerpt
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan import module_names, precision
from pytest_vllm_gates.memory_plan.parameter_parts import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_vllm_gates.memory_plan.parameter_parts import ParameterPart
    from pytest_vllm_gates.memory_plan.precision import Precision

PROJECTIONS = (Role.ATTENTION, Role.DENSE, Role.EXPERTS)
EXPERTS_ONLY = ("mxfp4", "gpt_oss_mxfp4", "experts_int8", "moe_wna16")
BY_BITS = (
    "awq", "awq_marlin", "auto_awq", "gptq", "gptq_marlin", "auto_gptq", "gptqmodel", "moe_wna16",
    "auto-round", "auto_round", "intel/auto-round", "inc",
)  # fmt: skip
BITSANDBYTES = ("bitsandbytes", "bnb")
COMPRESSED = "compressed-tensors"
KNOWN = {*precision.BY_METHOD, *BY_BITS, *BITSANDBYTES, COMPRESSED}
MIXED = "MIXED_PRECISION"
LISTS = (
    "ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules",
    "llm_int8_skip_modules", "exclude",
)  # fmt: skip


def method_of(quantisation: Mapping[str, Any]) -> str:
    """Return the method's name in lower case; empty for a checkpoint that is not quantised."""
    name = str(quantisation.get("quant_method") or "").lower().replace("compressed_", "compressed-")
    if not name and (quantisation.get("quant_algo") or "quantization" in quantisation):
        return "modelopt"  # hf_quant_config.json, and configs that name only the algorithm
    return name


def reader(
    method: str, quantisation: Mapping[str, Any]
) -> Callable[[ParameterPart], Precision | None] | None:
    """Return a function that gives a part's precision, None for a part that is not quantised.

    The function itself is None if the method's size is not known here.
    """
    if method == COMPRESSED:
        return _compressed(quantisation)
    if method.startswith("modelopt"):
        return _modelopt(method, quantisation)
    if method in BITSANDBYTES:
        eight = quantisation.get("load_in_8bit")
        kept = precision.FP8 if eight else precision.NORMAL_FLOAT
        return _all_but(kept, listed(quantisation), module_names.by_component)
    if method in BY_BITS:
        return _by_bits(method, quantisation)
    known = precision.BY_METHOD.get(method)
    if known is None:
        return None
    if method == "fp8" and not quantisation.get("weight_block_size"):
        known = precision.FP8
    matched = module_names.by_wildcard if method == "mxfp8" else module_names.exactly
    return _all_but(known, listed(quantisation), matched, experts_only=method in EXPERTS_ONLY)


def listed(place: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the modules that a checkpoint does not quantise."""
    for key in LISTS:
        names = place.get(key)
        if isinstance(names, list | tuple) and names:
            return tuple(str(name) for name in names if isinstance(name, str))
    return ()


def _all_but(
    kept: Precision,
    exceptions: tuple[str, ...],
    matched: Callable[[tuple[str, ...], tuple[str, ...]], bool],
    *,
    experts_only: bool = False,
) -> Callable[[ParameterPart], Precision | None]:
    roles = (Role.EXPERTS,) if experts_only else PROJECTIONS

    def read(part: ParameterPart) -> Precision | None:
        if part.role not in roles:
            return None
        if exceptions and matched(module_names.spelled(part.name), exceptions):
            return None
        return kept

    return read


def _by_bits(
    method: str, quantisation: Mapping[str, Any]
) -> Callable[[ParameterPart], Precision | None] | None:
    bits = quantisation.get("bits") or quantisation.get("w_bit") or 4
    group = quantisation.get("group_size") or quantisation.get("q_group_size") or 128
    usual = precision.grouped(bits, group, zeros=True)
    if usual is None:
        return None
    base = _all_but(
        usual,
        listed(quantisation),
        module_names.contains,
        experts_only=method in EXPERTS_ONLY,
    )
    overrides, own = _table(quantisation, "dynamic"), _table(quantisation, "extra_config")

    def read(part: ParameterPart) -> Precision | None:
        names = module_names.spelled(part.name)
        if part.role is Role.HEAD:
            return usual if quantisation.get("lm_head") is True else None
        if part.role not in PROJECTIONS:
            return None
        for pattern, values in overrides.items():
            expression = pattern.removeprefix("-:").removeprefix("+:")
            if any(module_names.matches(expression, name) for name in names):
                return None if pattern.startswith("-:") else _overridden(usual, values)
        for name, values in own.items():
            if module_names.exactly(names, (name,)):
                return _overridden(usual, values)
        return base(part)

    return read


def _table(quantisation: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a table of the quantisation, empty if there is none."""
    table = quantisation.get(key) or {}
    if not isinstance(table, dict):
        raise UserError(
            f"config.json: {key!r} of the quantisation is {excerpt(table)}; expected a table of "
            "module names, or patterns of them, with their bits"
        )
    return table


def _overridden(usual: Precision, values: object) -> Precision | None:
    """Return a module's own bits and group; None if it keeps 16 bits."""
    values = values if isinstance(values, dict) else {}
    bits, group = values.get("bits", int(usual.bits)), values.get("group_size", usual.group)
    made = precision.grouped(bits, group, zeros=usual.zero_bits > 0)
    return None if made is None or made.bits >= precision.MOST_BITS else made


def _compressed(
    quantisation: Mapping[str, Any],
) -> Callable[[ParameterPart], Precision | None] | None:
    groups = quantisation.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        return None
    formats: list[tuple[tuple[str, ...], Precision]] = []
    for group in groups.values():
        kept = precision.of_group(group.get("weights")) if isinstance(group, dict) else None
        if kept is None:
            return None
        targets = group.get("targets")
        names = targets if isinstance(targets, list) else ["Linear"]
        formats.append((tuple(str(name) for name in names), kept))
    ignored = listed(quantisation)

    def read(part: ParameterPart) -> Precision | None:
        if part.role not in (*PROJECTIONS, Role.HEAD):
            return None
        names = module_names.spelled(part.name)
        if module_names.by_expression(names, ignored):
            return None
        # A target that names the module comes before one that names its class.
        for targets, kept in formats:
            if module_names.by_expression(names, targets):
                return kept
        if part.role is Role.HEAD:
            return None  # its class is ParallelLMHead, which "Linear" does not match
        return next((kept for targets, kept in formats if _names_linear(targets)), None)

    return read


def _names_linear(targets: tuple[str, ...]) -> bool:
    return any(target.lower() in "columnparallellinear fusedmoe" for target in targets)


def _modelopt(
    method: str, quantisation: Mapping[str, Any]
) -> Callable[[ParameterPart], Precision | None] | None:
    inner = quantisation.get("quantization")
    place = inner if isinstance(inner, dict) else quantisation
    if str(place.get("quant_algo") or "").upper() == MIXED:
        return _mixed(place)
    known = precision.of_algorithm(place)
    if known is None and place.get("quant_algo") is None:
        known = precision.BY_METHOD.get(method)
    if known is None:
        return None
    return _all_but(known, listed(place), module_names.by_wildcard)


def _mixed(place: Mapping[str, Any]) -> Callable[[ParameterPart], Precision | None] | None:
    """Return the reader of a ModelOpt checkpoint that lists each module's precision."""
    layers = place.get("quantized_layers")
    if not isinstance(layers, dict) or not layers:
        return None
    kept = {
        name: precision.of_algorithm(values) if isinstance(values, dict) else None
        for name, values in layers.items()
    }
    if None in kept.values():
        return None
    # Experts are listed one by one: the first listed one counts for its layer.
    shortened = {name.partition(".experts.")[0] + ".experts": value for name, value in kept.items()
                 if ".experts." in name}  # fmt: skip

    def read(part: ParameterPart) -> Precision | None:
        if part.role not in (*PROJECTIONS, Role.HEAD):
            return None
        names = module_names.spelled(part.name)
        return next((value for name in names if (value := kept.get(name) or shortened.get(name))),
                    None)  # fmt: skip

    return read
