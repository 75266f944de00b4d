"""The releases, families and gates to run, and the duration."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from pytest_vllm_gates.atlas import kept
from pytest_vllm_gates.catalog import releases as catalog_releases
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.atlas.types import AtlasRun

LEFT_OUT = ("load", "throughput", "long_context")
"""Gates that measure speed or fill memory: they depend more on a machine than on a release."""
GATES = " and ".join(f"not {gate}" for gate in LEFT_OUT)
TO = ".."
RUN_S = 400.0
"""Duration of a run if no kept run gives an estimate: measured on two cores."""
ENVIRONMENT_S = 60.0
"""To make the environment of a release: 35 s on an idle machine."""


@dataclass(frozen=True)
class AtlasPlan:
    """The runs to make, and those that are kept."""

    missing: tuple[tuple[str, str], ...]
    """Release and family."""
    made: tuple[tuple[str, str], ...]
    seconds: float


def releases(text: str, package: str, listed: Sequence[str]) -> list[str]:
    """Return the releases of `A..B` or `A,B`, oldest first; `listed` are those of the index.

    Raises `UserError` for a release that is unknown, and for an empty range.
    """
    if TO not in text:
        wanted = [word.strip() for word in text.split(",") if word.strip()]
        for each in wanted:
            catalog_releases.parsed(each)
        return sorted(dict.fromkeys(wanted), key=Version)
    first, _, last = text.partition(TO)
    low, high = catalog_releases.parsed(first), catalog_releases.parsed(last)
    known = sorted(filter(_is_final, listed), key=Version)
    found = [each for each in known if low <= Version(each) <= high]
    if not found or Version(found[0]) != low or Version(found[-1]) != high:
        missing = [each for each in (first, last) if each not in found]
        raise UserError(
            f"--releases {text}: the index has no {package} {' and no '.join(missing) or text}\n"
            f"list the releases: pip index versions {package}"
        )
    return found


def _is_final(release: str) -> bool:
    try:
        version = Version(release)
    except InvalidVersion:
        return False
    return not (version.is_prerelease or version.is_postrelease)


def of(
    wanted: Sequence[str], families: Sequence[str], runs: list[AtlasRun], *, again: bool
) -> AtlasPlan:
    """Return the plan: a run that is kept is not made again, unless `again`."""
    pairs = [(release, family) for release in wanted for family in families]
    made = tuple(pair for pair in pairs if not again and kept.is_made(runs, *pair, GATES))
    missing = tuple(pair for pair in pairs if pair not in made)
    seconds = sum(_seconds(family, runs) for _, family in missing)
    return AtlasPlan(missing, made, seconds + ENVIRONMENT_S * len({pair[0] for pair in missing}))


def _seconds(family: str, runs: Sequence[AtlasRun]) -> float:
    """Return the duration of a family's runs, or of any runs, if some are kept."""
    booted = [run for run in runs if not run.boot]
    own = [run.seconds for run in booted if run.family == family]
    return statistics.median(own or [run.seconds for run in booted] or [RUN_S])
