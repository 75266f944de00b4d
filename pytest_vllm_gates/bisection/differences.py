"""The differences of two lanes, as axes that can be mixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from pytest_vllm_gates.bisection.types import AxisSpan
from pytest_vllm_gates.catalog import releases
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.lanes import diff as lanes_diff, feature_axes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.lanes.describe import BundleDiff
    from pytest_vllm_gates.nightly.types import CommitRow

    ReleasesOf = Callable[[str], Sequence[str]]
    CommitsBetween = Callable[[], CommitRow]

OVERLAY, CHECKPOINT, PYTHON, START = "overlay", "checkpoint", "Python", "start"
ENVIRONMENT, TEMPLATE = "environment", "chat template"
TEMPLATE_FLAG = "chat_template"
LEADS = {"vllm": lanes_diff.VLLM_PACKAGES, "transformers": ("transformers",), "torch": ("torch",),
         "tokenizers": ("tokenizers",)}  # fmt: skip
NONE = "none"


@dataclass(frozen=True)
class LanePair:
    """Two lanes with locks, and the axis of each difference."""

    good: Lane
    bad: Lane
    good_versions: Mapping[str, str]
    """The versions that each lock pins for this machine, by package."""
    bad_versions: Mapping[str, str]
    package_axes: Mapping[str, str]
    """The axis of each package that differs."""
    axes: tuple[AxisSpan, ...]
    fixed: tuple[str, ...] = ()
    """Differences that no bundle can mix, such as the machine."""

    follows: frozenset[str] = frozenset()
    """Flags that follow the release of vLLM."""
    commits: CommitRow | None = None
    """The commits of vLLM between the two, if they are searched instead of the releases."""
    urls: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
    """The addresses of packages that a lock does not take from the index, by package."""

    def release(self, lane: Lane) -> str:
        """Return the release that a lane's vLLM counts as, for its start and its flags.

        The version of a wheel by commit counts from the last tag on main, which may be lower than
        earlier releases; its lane names the release.
        """
        return (
            lane.vllm
            or (self.good_versions if lane is self.good else self.bad_versions)[self.package]
        )

    @property
    def package(self) -> str:
        """The distribution that brings vLLM."""
        return next(name for name in lanes_diff.VLLM_PACKAGES if name in self.good_versions)


def pair(
    good: Lane,
    bad: Lane,
    versions: tuple[Mapping[str, str], Mapping[str, str]],
    diff: BundleDiff,
    releases_of: ReleasesOf,
    *,
    commits_between: CommitsBetween | None = None,
    urls: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {}),
) -> LanePair:
    """Return two lanes with their axes. `versions`: what their locks pin, the good lane's first.

    `commits_between` replaces vLLM's releases. Raises `UserError` for lanes whose packages cannot
    be mixed.
    """
    for lane in (good, bad):
        if lane.form != "lock":
            raise UserError(
                f"lane {lane.name} has {lane.form}: only lanes with a lock can be mixed\n"
                f"make a lock for it: vllm-gates lane freeze {lane.name}-frozen --from {lane.name}"
            )
    if good.device != bad.device and good.device and bad.device:
        raise UserError(
            f"lane {good.name} is for {good.device}, lane {bad.name} for {bad.device}: bisect "
            "between lanes of one device"
        )
    package_axes = {
        change.name: change.axis for change in diff.changed if change.axis in lanes_diff.PACKAGES
    }
    commits = commits_between() if commits_between and "vllm" in package_axes.values() else None
    spans = [
        _packages(axis, package_axes, versions, releases_of, commits if axis == "vllm" else None)
        for axis in lanes_diff.PACKAGES
    ]
    package = next(name for name in lanes_diff.VLLM_PACKAGES if name in versions[0])
    follows = following(
        good, bad, good.vllm or versions[0][package], bad.vllm or versions[1].get(package, "0")
    )
    spans += [*_settings(good, bad, follows, vllm_differs="vllm" in package_axes.values())]
    mixed = {*lanes_diff.PACKAGES, lanes_diff.FLAGS, ENVIRONMENT, OVERLAY, CHECKPOINT, START}
    mixed |= {TEMPLATE, "tokenizer"}
    # The flags and variables of a feature are mixed together, as one axis.
    fixed = tuple(
        axis
        for axis in diff.axes
        if axis not in mixed and feature_axes.listed_as(axis) != feature_axes.FEATURES
    )
    return LanePair(
        good, bad, *versions, package_axes, tuple(span for span in spans if span), fixed, follows,
        commits, urls,
    )  # fmt: skip


def _packages(
    axis: str,
    package_axes: Mapping[str, str],
    versions: tuple[Mapping[str, str], Mapping[str, str]],
    releases_of: ReleasesOf,
    commits: CommitRow | None,
) -> AxisSpan | None:
    names = sorted(name for name, of in package_axes.items() if of == axis)
    if not names:
        return None
    good, bad = versions
    lead = next((name for name in LEADS.get(axis, ()) if name in names), None)
    if lead is None or lead not in good or lead not in bad:
        changes = tuple(names)
        return AxisSpan(axis, _listed(names, good), _listed(names, bad), items=changes)
    ends = good[lead], bad[lead]
    if commits is not None:
        between = (ends[0], *commits.available, ends[1])
        return AxisSpan(
            axis, *ends, versions=between, missing=commits.missing, newer_good=commits.newer_good
        )
    between = row(*ends, releases_of(lead))
    newer_good = Version(ends[0]) > Version(ends[1])
    return AxisSpan(axis, *ends, versions=between, newer_good=newer_good)


def _listed(names: Sequence[str], versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {versions.get(name, NONE)}" for name in names)


def row(good: str, bad: str, known: Sequence[str]) -> tuple[str, ...]:
    """Return the releases from the good one to the bad one, in that order, both included.

    Pre-releases between are left out; for a build (`2.13.0+cpu`) only the ends are known.
    """
    low, high = sorted([Version(good), Version(bad)])
    between: dict[Version, str] = {}
    for text in known:
        try:
            version = Version(text)
        except InvalidVersion:
            continue
        if low < version < high and not version.is_prerelease and not high.local:
            between[version] = text
    ordered = [between[version] for version in sorted(between)]
    if Version(good) > Version(bad):
        ordered.reverse()
    return (good, *ordered, bad)


def following(good: Lane, bad: Lane, good_vllm: str, bad_vllm: str) -> frozenset[str]:
    """Return the flags of one lane that the other lane's release does not accept.

    They follow the release: a bundle has them if its own release accepts them.
    """
    sides = ((good, bad, bad_vllm), (bad, good, good_vllm))
    return frozenset(
        name
        for lane, other, version in sides
        for name in lane.serve
        if name not in other.serve and releases.unknown(releases.flags(version), [name])
    )


def _settings(
    good: Lane, bad: Lane, follows: frozenset[str], *, vllm_differs: bool
) -> list[AxisSpan]:
    """Return the axes of flags, variables, template, overlay, checkpoint and start."""
    spans = []
    flags = [name for name in _changed(good.serve, bad.serve) if name not in follows]
    if TEMPLATE_FLAG in flags:
        flags.remove(TEMPLATE_FLAG)
        spans.append(
            AxisSpan(
                TEMPLATE,
                str(good.serve.get(TEMPLATE_FLAG, NONE)),
                str(bad.serve.get(TEMPLATE_FLAG, NONE)),
            )
        )
    if flags:
        spans.append(_items(lanes_diff.FLAGS, flags, good.serve, bad.serve))
    if variables := _changed(good.env, bad.env):
        spans.append(_items(ENVIRONMENT, variables, good.env, bad.env))
    whole = [
        (OVERLAY, good.overlay_path, bad.overlay_path),
        (CHECKPOINT, good.checkpoint, bad.checkpoint),
    ]
    if not vllm_differs:  # else the entry point follows the release
        whole.append((START, " ".join(good.start.server), " ".join(bad.start.server)))
    spans += [
        AxisSpan(name, str(ours or NONE), str(theirs or NONE))
        for name, ours, theirs in whole
        if ours != theirs
    ]
    return spans


def _changed(good: Mapping[str, object], bad: Mapping[str, object]) -> list[str]:
    return [name for name in dict.fromkeys([*good, *bad]) if good.get(name) != bad.get(name)]


def _items(
    axis: str, names: list[str], good: Mapping[str, object], bad: Mapping[str, object]
) -> AxisSpan:
    def shown(side: Mapping[str, object]) -> str:
        return ", ".join(name if name in side else f"no {name}" for name in names)

    return AxisSpan(axis, shown(good), shown(bad), items=tuple(names))
