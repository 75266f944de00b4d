"""The requests to a server with LoRA adapters, and its answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_vllm_gates.client.completion import Completion

LOADED, TAKEN_OUT, LOADED_AGAIN = "load", "unload", "load again"
TAKEN_OUT_TWICE, REPLACED = "unload twice", "load another under its name"
"""The steps of loading an adapter into a running server."""


@dataclass(frozen=True)
class AdapterFiles:
    """An adapter's folder on this machine."""

    name: str
    folder: Path
    rank: int
    begins: str = ""
    """The word that its answers begin with, if known."""


@dataclass(frozen=True)
class ListedModel:
    """One entry of `/v1/models`."""

    id: str
    root: str
    parent: str
    """The base model of an adapter; empty for a base model."""


@dataclass(frozen=True)
class ModelAnswer:
    """The answer to one request for a base model or an adapter."""

    requested: str
    """The requested model; '' for the base model."""
    question: str
    """A short name of the question."""
    completion: Completion


@dataclass(frozen=True)
class UnknownRefusal:
    """The answer to a request for an adapter that is not served."""

    route: str
    request: Mapping[str, object]
    status: int
    type: str
    """The error's type in the answer's JSON; empty if it has none."""
    text: str


@dataclass(frozen=True)
class LoadStep:
    """One step of loading an adapter into a running server, or of unloading it."""

    name: str
    status: int
    text: str
    """The beginning of the answer."""
    answer: Completion | None = None
    """The answer under the adapter's name after this step."""
    of: str = ""
    """The adapter whose files are loaded."""


@dataclass
class AdapterAnswers:
    """All answers of a server with adapters."""

    base: tuple[str, ...]
    """The names of the base model."""
    adapters: tuple[str, ...]
    """The adapters that are expected or listed."""
    begins: Mapping[str, str] = field(default_factory=dict)
    """The word that an adapter's answers begin with, by its name, if known."""
    listed: tuple[ListedModel, ...] = ()
    alone: list[ModelAnswer] = field(default_factory=list)
    streamed: list[ModelAnswer] = field(default_factory=list)
    base_after: list[ModelAnswer] = field(default_factory=list)
    company: list[ModelAnswer] = field(default_factory=list)
    cold: list[ModelAnswer] = field(default_factory=list)
    """A long prompt under each model, none of it in the cache."""
    warm: list[ModelAnswer] = field(default_factory=list)
    """The same prompt under one model after the other."""
    cached_tokens: float | None = None
    """Tokens of these prompts from the cache; None if the server does not count them."""
    refusals: list[UnknownRefusal] = field(default_factory=list)
    unfit: list[LoadStep] = field(default_factory=list)
    """The loads of adapters that do not fit."""
    loads: list[LoadStep] = field(default_factory=list)
    """The loads of an adapter that fits: loaded, unloaded and loaded again."""
    broke: str = ""
    """Why the requests ended early; empty if they did not."""
    no_loading: str = ""
    """Why no adapter was loaded."""

    def reference(self, answer: ModelAnswer) -> Completion | None:
        """Return the same model's answer to the same question alone."""
        return next(
            (
                other.completion
                for other in (*self.alone, *self.cold)
                if (other.requested, other.question) == (answer.requested, answer.question)
            ),
            None,
        )
