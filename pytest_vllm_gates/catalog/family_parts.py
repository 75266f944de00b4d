"""The tables of a family's file: its abilities, its weights, its traps."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from pytest_vllm_gates.catalog import known_defects, toml


class Thinking(toml.Record):
    """How the family thinks: its tags, who opens them, which switch turns it on, the default."""

    open: str
    close: str
    opened_by: Literal["template", "model"]
    switch: str | None = None
    """The chat-template keyword; absent if thinking cannot be switched."""
    default: bool
    with_tools: bool = True
    efforts: tuple[str, ...] = ()
    """The reasoning efforts that the template accepts."""
    effort_numbers: tuple[int, int] | None = None
    """The least and the largest numeric effort, both included."""

    @model_validator(mode="after")
    def _numbers_are_ordered(self) -> Thinking:
        if self.effort_numbers and not self.effort_numbers[0] < self.effort_numbers[1]:
            raise ValueError(f"effort_numbers is [least, largest]: {list(self.effort_numbers)}")
        return self


class Tools(toml.Record):
    """How tool calls and results are written; `markers` must never reach the client."""

    call: str
    result: str
    markers: tuple[str, ...]
    json_of: tuple[Literal["declarations", "arguments", "values", "results"], ...] = ()
    """The parts of a prompt that are JSON: the parameters of tools, the arguments of calls, or only
    the arguments that are lists and objects, and the text of results."""
    alone: bool = False
    """Whether an answer with a call cannot have text beside the call."""


class Context(toml.Record):
    """Tokens of context: the model's own and those that the deployment plans for."""

    native: int = Field(gt=0)
    """The value of `config.json`, without rope scaling; a checkpoint may have its own."""
    planned: int = Field(gt=0)
    concurrency: int = Field(default=4, gt=0)
    """Concurrent requests of the planned length that must fit."""

    @model_validator(mode="after")
    def _is_possible(self) -> Context:
        if self.planned > self.native:
            raise ValueError(
                f"planned ({self.planned}) is more than the model was made for ({self.native})"
            )
        return self


class Sampling(toml.Record):
    """The sampling that its makers recommend; gates always request greedy answers."""

    temperature: float = Field(ge=0)
    top_p: float = Field(gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    reference: str


class CheckpointEntry(toml.Record):
    """One member's weights: a Hub id with its revision, a folder, or the miniature of that name."""

    name: toml.Name
    hub: str | None = None
    revision: str | None = None
    folder: str | None = None
    """In a family's file relative to that file; else absolute."""
    miniature: str | None = None
    native: int | None = Field(default=None, gt=0)
    """Its context, if it differs from the family's `context.native`."""
    serve: dict[str, Any] = Field(default_factory=dict)
    untaught: tuple[Literal["digit", "count", "which"], ...] = ()
    """Kinds of questions about pictures that a miniature was not taught."""

    @model_validator(mode="after")
    def _taught_by_us(self) -> CheckpointEntry:
        if self.untaught and self.miniature is None:
            raise ValueError(f"checkpoint {self.name!r}: untaught is for miniatures alone")
        return self

    @model_validator(mode="after")
    def _one_source(self) -> CheckpointEntry:
        if [self.hub, self.folder, self.miniature].count(None) != len(("hub", "folder")):
            raise ValueError(
                f"checkpoint {self.name!r} needs exactly one of hub, folder and miniature"
            )
        return self


class Gotcha(toml.Record):
    """A known trap of the family and its report."""

    what: str
    reference: str


class Unserved(toml.Record):
    """Releases of vLLM that checks cannot judge, because they do not serve the family correctly.

    `--model all` leaves the family out there and reports it; named itself it is judged, and fails.
    """

    versions: known_defects.EndingVersions
    device: Literal["cpu", "cuda"]
    what: toml.Sentence
    reference: toml.Sentence
