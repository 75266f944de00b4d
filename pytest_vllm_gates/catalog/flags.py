"""vLLM's command line, made from the flags of lane, family and checkpoint; typed arguments."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.lane import Lane


def serving(family: Family, checkpoint: Checkpoint, lane: Lane) -> dict[str, Any]:
    """Return the flags that serve a checkpoint; the lane's flags override the others."""
    return merged(family.serve, checkpoint.serve, lane.serve)


PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def devices(serve: Mapping[str, Any]) -> int:
    """Return how many devices a server with these flags needs.

    An invalid number counts as one: preflight reports it.
    """
    count = 1
    for name in PARALLEL:
        with contextlib.suppress(ValueError, TypeError):
            count *= int(serve.get(name, 1))
    return count


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge flags; later layers win. A dash and an underscore spell the same flag."""
    result: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            result[name.replace("-", "_")] = value
    return result


def command_line(flags: Mapping[str, Any]) -> list[str]:
    """Return `--flag value` arguments.

    True gives the bare flag, false its `--no-` form, a table JSON, a list several values.
    """
    arguments: list[str] = []
    for name, value in flags.items():
        flag = name.replace("_", "-")
        if value is True:
            arguments.append(f"--{flag}")
        elif value is False:
            arguments.append(f"--no-{flag}")
        elif isinstance(value, dict):
            arguments += [f"--{flag}", json.dumps(value, ensure_ascii=False)]
        elif isinstance(value, list | tuple):
            arguments += [f"--{flag}", *map(str, value)]
        else:
            arguments += [f"--{flag}", str(value)]
    return arguments


def start_command(
    lane: Lane, program: Sequence[str], arguments: Sequence[str], model: str, port: int
) -> list[str]:
    """Return the command that starts a server: the lane's `program`, or its prefix and the rest."""
    if lane.command is None:
        return [*program, *arguments]
    words = {"{port}": str(port), "{model}": model}
    prefix: list[str] = []
    for part in lane.command:
        for word, value in words.items():
            part = part.replace(word, value)  # noqa: PLW2901 - that is the substitution
        prefix.append(part)
    if "{flags}" in prefix:
        position = prefix.index("{flags}")
        return [*prefix[:position], *arguments, *prefix[position + 1 :]]
    return prefix if lane.served_model_name else [*prefix, *arguments]


def without(
    arguments: Sequence[str],
    valued: Collection[str],
    flags: Collection[str] = (),
    optional: Collection[str] = (),
) -> list[str]:
    """Return `arguments` without these options: `valued` with their values, and `flags`.

    A value is the next argument, follows `=`, or directly follows an option of one letter.
    An option in `optional` may have no value, before another option or at the end.
    """
    kept_arguments: list[str] = []
    remaining = iter(arguments)
    may_follow = False
    for argument in remaining:
        follows, may_follow = may_follow, argument in optional
        if follows and not argument.startswith("-"):
            continue
        if argument in valued:
            next(remaining, None)
        elif may_follow or any(_carries_value(argument, option) for option in optional):
            continue
        elif not (argument in flags or any(_carries_value(argument, option) for option in valued)):
            kept_arguments.append(argument)
    return kept_arguments


def _carries_value(argument: str, option: str) -> bool:
    return argument.startswith(f"{option}=" if option.startswith("--") else option)
