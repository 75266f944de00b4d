"""What one side of a comparison serves with, and what two sides differ in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Told = Mapping[str, str | None]
"""Values by name; one that is None cannot be known."""


@dataclass(frozen=True)
class BundleDescription:
    """One lane's bundle, in plain words. What is None cannot be known from here."""

    lane: str
    start: Mapping[str, str]
    """What is run, or the URL of what runs; without secrets."""
    versions: Mapping[str, str] | None = None
    """Of every package, by normalised name."""
    contents: Mapping[str, str] = field(default_factory=dict)
    """sha256 of what each package's own record says it is, by name; empty where not installed."""
    python: str | None = None
    cuda: str | None = None
    """The CUDA of torch; `none` for a torch without."""
    driver: str | None = None
    """The NVIDIA driver's version; `none` where none answers."""
    driver_cuda: str | None = None
    machine: Told | None = None
    flags: Mapping[str, Mapping[str, str]] | None = None
    """vLLM's flags as they are set, by family; those of the lane alone under no name."""
    environment: Mapping[str, str] | None = None
    """The variables that the lane sets, without secrets."""
    seals: Mapping[str, bytes] = field(default_factory=dict)
    """What tells two secrets apart, by the name that has one; nothing outside this process."""
    overlay: Mapping[str, str] | None = None
    """sha256 of each file of the overlay that takes effect, by its path inside."""
    templates: Told | None = None
    """sha256 of the chat template, by family; `none` where there is none."""
    tokenizers: Told | None = None
    """sha256 of the tokenizer's files, by family."""
    checkpoints: Mapping[str, Told] | None = None
    """Source, revision and sha256 of the config, by family."""


@dataclass(frozen=True)
class Change:
    """One thing that differs; None on a side that does not have it."""

    axis: str
    name: str
    ours: str | None
    theirs: str | None


@dataclass(frozen=True)
class BundleDiff:
    """What two bundles differ in. An axis that cannot be known is neither changed nor the same."""

    ours: str
    theirs: str
    changed: tuple[Change, ...]
    same: tuple[str, ...]
    unknown: tuple[str, ...]
    warning: str | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that changed, in the order in which they are told."""
        return tuple(dict.fromkeys(change.axis for change in self.changed))
