"""The features that only one of two lanes turns on: each kind is an axis by its name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_vllm_gates.features.catalog import WITH
from pytest_vllm_gates.lanes.describe import BundleChange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_vllm_gates.lanes.describe import BundleDescription

FEATURES = "features"
"""The axis if no feature differs."""
PREFIX = "feature "
"""The first word of the axis of features of one kind that differ: `feature ngram`."""
FLAGS, ENVIRONMENT = "flags", "environment"


@dataclass(frozen=True)
class FeatureAxis:
    """The features of one kind that differ, and the settings that turn them on."""

    change: BundleChange
    """Its name is the kind, its values are the features of that kind on each side."""
    flags: frozenset[str]
    variables: frozenset[str]


def unknown(ours: BundleDescription, theirs: BundleDescription) -> str:
    """Return which features cannot be known; '' if all can.

    A server that runs already may have features on that its lane does not declare.
    """
    if ours.features is None or theirs.features is None:
        return FEATURES
    names = [
        name
        for side, other in ((ours, theirs), (theirs, ours))
        for name in side.features or {}
        if other.partial and name not in (other.features or {})
    ]
    return f"{FEATURES} ({', '.join(names)})" if names else ""


def differing(ours: BundleDescription, theirs: BundleDescription) -> list[FeatureAxis]:
    """Return an axis for each kind of features that is known to differ."""
    if unknown(ours, theirs) or ours.features is None or theirs.features is None:
        return []
    both = {**ours.features, **theirs.features}
    axes = []
    for kind in dict.fromkeys(feature.kind for feature in both.values()):
        our_names, their_names = (
            [name for name, feature in side.items() if feature.kind == kind]
            for side in (ours.features, theirs.features)
        )
        names = [name for name in both if (name in our_names) != (name in their_names)]
        if not names:
            continue
        change = BundleChange(
            PREFIX + " or ".join(sorted(names)),
            kind,
            WITH.join(our_names) or None,
            WITH.join(their_names) or None,
        )
        flags = (flag for name in names for flag in both[name].flags)
        variables = (variable for name in names for variable in both[name].variables)
        axes.append(FeatureAxis(change, frozenset(flags), frozenset(variables)))
    return axes


def gathered(changes: Iterable[BundleChange], axes: Iterable[FeatureAxis]) -> list[BundleChange]:
    """Return the changes with those of features; a feature's settings are counted with it."""
    axes = tuple(axes)
    return [*(axis.change for axis in axes), *(_of_feature(change, axes) for change in changes)]


def _of_feature(change: BundleChange, axes: Iterable[FeatureAxis]) -> BundleChange:
    setting = change.name.rpartition(": ")[2]
    for axis in axes:
        is_flag = change.axis == FLAGS and setting.replace("-", "_") in axis.flags
        is_variable = change.axis == ENVIRONMENT and setting in axis.variables
        if is_flag or is_variable:
            return replace(change, axis=axis.change.axis)
    return change


def listed_as(axis: str) -> str:
    """Return the axis' name in lists of all axes: `features` for `feature ngram`."""
    return FEATURES if axis.startswith(PREFIX) else axis
