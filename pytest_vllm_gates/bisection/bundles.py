"""Makes the lane of a mixture: a lock with the packages of both sides, and the settings."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from pytest_vllm_gates.bisection import differences
from pytest_vllm_gates.catalog import flags, lane as lanes, releases
from pytest_vllm_gates.environment import release_lock
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import write_together
from pytest_vllm_gates.lanes import diff as lanes_diff
from pytest_vllm_gates.nightly.types import is_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_vllm_gates.bisection.differences import LanePair
    from pytest_vllm_gates.bisection.types import Mixture

DIGITS = 8


class UnresolvableError(Exception):
    """A bundle with these versions cannot be made."""


def lane_of(mixture: Mixture, pair: LanePair, folder: Path) -> Path:
    """Return the file of the mixture's lane in `folder`, written if it is missing.

    Raises `UnresolvableError`.
    """
    name = f"mixed-{hashlib.sha256(mixture.key.encode()).hexdigest()[:DIGITS]}"
    file = folder / f"{name}.toml"
    if not file.exists():
        own_lock = _whole(mixture, pair)
        lock = own_lock or file.with_suffix(".txt")
        written = {} if own_lock else {lock: _resolved(mixture, pair)}
        table = settings(mixture, pair, lock=str(own_lock or lock.name))
        write_together({**written, file: _text(table)})
    return file


def _text(table: dict[str, Any]) -> str:
    import tomli_w  # noqa: PLC0415 - only where a lane is written

    return tomli_w.dumps(table)


def is_bad(mixture: Mixture, axis: str, item: str = "") -> bool:
    """Return whether an axis, or one change of it, is the bad lane's."""
    if mixture.items and mixture.items[0] == axis:
        return item in mixture.items[1]
    return axis in mixture.changed


def vllm_version(mixture: Mixture, pair: LanePair) -> str:
    """Return the version of vLLM in a mixture: a release, or a commit's label."""
    if mixture.version and mixture.version[0] == "vllm":
        return mixture.version[1]
    side = pair.bad_versions if is_bad(mixture, "vllm") else pair.good_versions
    return side[pair.package]


def vllm_release(mixture: Mixture, pair: LanePair) -> str:
    """Return the release that the vLLM of a mixture counts as, for its start and its flags.

    A commit between two releases counts as the older of them: later versions still accept the
    older entry point and flags, deprecated at worst.
    """
    if mixture.version and mixture.version[0] == "vllm":
        if not is_label(mixture.version[1]):
            return mixture.version[1]
        return min(pair.release(pair.good), pair.release(pair.bad), key=Version)
    return pair.release(pair.bad if is_bad(mixture, "vllm") else pair.good)


def vllm_wheel(mixture: Mixture, pair: LanePair) -> str | None:
    """Return the address of a mixture's vLLM if it is a wheel by commit."""
    if mixture.version and mixture.version[0] == "vllm":
        wheels = pair.commits.wheels if pair.commits else {}
        return wheels[mixture.version[1]].url if mixture.version[1] in wheels else None
    return pair.urls[is_bad(mixture, "vllm")].get(pair.package)


def settings(mixture: Mixture, pair: LanePair, *, lock: str) -> dict[str, Any]:
    """Return the table of the mixture's lane."""
    good, bad = pair.good, pair.bad
    table = good.model_dump(mode="json", exclude_unset=True)
    for key in ("name", "file", *lanes.FORMS, *lanes.RELEASE):
        table.pop(key, None)
    version = vllm_release(mixture, pair)
    serve = _mixed(flags.merged(good.serve), flags.merged(bad.serve), mixture, lanes_diff.FLAGS)
    serve |= {
        name: value
        for side in (good, bad)
        for name, value in side.serve.items()
        if name in pair.follows
    }
    serve.pop(differences.TEMPLATE_FLAG, None)
    side = bad if is_bad(mixture, differences.TEMPLATE) else good
    if template := side.serve.get(differences.TEMPLATE_FLAG):
        serve[differences.TEMPLATE_FLAG] = template
    table["serve"], _ = releases.translated(serve, version)
    table["env"] = _mixed(good.env, bad.env, mixture, differences.ENVIRONMENT)
    for key, path in (("overlay", "overlay_path"), ("checkpoint", "checkpoint")):
        value = getattr(bad if is_bad(mixture, key) else good, path)
        table.pop(key, None)
        if value is not None:
            table[key] = str(value)
    table["start"] = _start(mixture, pair, version)
    return table | {"title": f"mixed: {mixture.key}"[:200], "lock": lock}


def _start(mixture: Mixture, pair: LanePair, version: str) -> dict[str, Any]:
    good, bad = pair.good.start, pair.bad.start
    start: Any = bad if is_bad(mixture, differences.START) else good
    if good != bad and "vllm" in pair.package_axes.values():
        start = releases.start(version)
    words = {"server": list(start.server)}
    return words | ({"renderer": list(start.renderer)} if start.renderer else {})


def _mixed(
    good: Mapping[str, Any], bad: Mapping[str, Any], mixture: Mixture, axis: str
) -> dict[str, Any]:
    sides = {
        name: bad if is_bad(mixture, axis, name) else good for name in dict.fromkeys([*good, *bad])
    }
    return {name: side[name] for name, side in sides.items() if name in side}


def _whole(mixture: Mixture, pair: LanePair) -> Path | None:
    """Return the lock of the lane with exactly a mixture's packages; None for a mix."""
    axes = {*pair.package_axes.values()}
    changed = axes & mixture.changed
    parts = {part[0] for part in (mixture.version, mixture.items) if part}
    if axes & parts:
        return None
    if not changed:
        return pair.good.lock_path
    return pair.bad.lock_path if changed == axes else None


def _resolved(mixture: Mixture, pair: LanePair) -> str:
    """Return the text of a lock with the packages of a mixture; raises `UnresolvableError`."""
    version = vllm_version(mixture, pair)
    wheel = vllm_wheel(mixture, pair)
    pins = dict(_pins(mixture, pair))
    device = "cpu" if pair.package == releases.table().devices["cpu"].package else "cuda"
    # First as close to both lanes as possible; then the resolver chooses the dependent packages.
    for attempt in (pins, _deciding(pins, pair)):
        lines = [f"{name}=={pin}" for name, pin in attempt.items() if name != pair.package]
        try:
            return release_lock.here(version, device, besides=lines, wheel=wheel).lock
        except UserError as error:
            reason = error
    raise UnresolvableError(str(reason)) from reason


def _deciding(pins: Mapping[str, str], pair: LanePair) -> dict[str, str]:
    """Return the pins of packages that are an axis, or that changed independently."""
    leads = {name for names in differences.LEADS.values() for name in names}
    return {
        name: pin
        for name, pin in pins.items()
        if name in leads or pair.package_axes.get(name) == lanes_diff.OTHER_PACKAGES
    }


def _pins(mixture: Mixture, pair: LanePair) -> Iterable[tuple[str, str]]:
    """Yield the version of each package that a mixture decides."""
    for name in sorted({*pair.good_versions, *pair.bad_versions}):
        axis = pair.package_axes.get(name, "")
        if mixture.version and mixture.version[0] == axis:
            if name in differences.LEADS.get(axis, ()):
                yield name, mixture.version[1]
            continue
        side = pair.bad_versions if is_bad(mixture, axis, name) else pair.good_versions
        if name in side:
            yield name, side[name]
