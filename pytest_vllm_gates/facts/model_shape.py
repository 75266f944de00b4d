"""What of a model's config decides its memory: which layer keeps what of a token or a sequence."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(StrEnum):
    """What a layer keeps: of every token, of the last ones, or of the sequence as a whole."""

    FULL = "full attention"
    SLIDING = "sliding window"
    CHUNKED = "chunked attention"
    LATENT = "latent attention"
    INDEXER = "sparse indexer"
    STATE = "recurrent state"


@dataclass(frozen=True)
class State:
    """A recurrent layer's state of one sequence, before tensor parallelism divides it.

    It is a convolution's last inputs, `rows` of `channels` (and of `group_channels` for each of
    `groups`, which are repeated where there are fewer than devices), and the memory itself:
    `heads` of `head_elements` each.
    """

    channels: int
    rows: int
    heads: int
    head_elements: int
    groups: int = 0
    group_channels: int = 0
    precision: str = "auto"
    """The memory's own type where the model names one; "auto" is that of the convolution."""
    rows_per_draft: bool = True
    """Whether the convolution keeps one more row for each drafted token."""


@dataclass(frozen=True)
class Cache:
    """What one layer keeps. Widths are in elements; an indexer's `key` is in bytes."""

    layer: int
    kind: Kind
    heads: int = 1
    key: int = 0
    value: int = 0
    window: int | None = None
    """Tokens a sliding window sees, or tokens of a chunk."""
    state: State | None = None


@dataclass(frozen=True)
class ModelShape:
    """A model as its config.json describes it, with the defaults its class fills in."""

    architecture: str
    model_type: str
    layers: int
    caches: tuple[Cache, ...]
    dtype: str
    context: int | None = None
    """Tokens the model was made for."""
    drafter: tuple[Cache, ...] = ()
    """What the model's own prediction layers keep, when they are used to draft."""
    sparse: bool = False
    quantisation: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    """The text part of the config, defaults filled in."""
    whole: Mapping[str, Any] = field(default_factory=dict)
    """The config as given."""
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """Why this model's cache cannot be foretold; empty where it can."""
