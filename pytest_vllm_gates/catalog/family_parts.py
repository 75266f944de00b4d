"""The tables of a family's file: what it has, where its weights are, its traps."""

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
    """The chat-template keyword; absent where thinking cannot be switched."""
    default: bool
    with_tools: bool = True
    efforts: tuple[str, ...] = ()
    """The reasoning efforts the template knows."""
    effort_numbers: tuple[int, int] | None = None
    """The least and the largest effort of those that are numbers, both among them."""

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
    """What a prompt holds as JSON: the parameters of tools, the arguments of calls, or those of
    the arguments that are lists and objects, and the text of results."""
    alone: bool = False
    """Whether an answer that calls has no room for text beside the call."""


class Context(toml.Record):
    """Tokens of context: what the model was made for and what the deployment plans for."""

    native: int = Field(gt=0)
    """What `config.json` says, without rope scaling; a checkpoint may have its own."""
    planned: int = Field(gt=0)
    concurrency: int = Field(default=4, gt=0)
    """Requests of the planned length that are to fit at once."""

    @model_validator(mode="after")
    def _is_possible(self) -> Context:
        if self.planned > self.native:
            raise ValueError(
                f"planned ({self.planned}) is more than the model was made for ({self.native})"
            )
        return self


class Sampling(toml.Record):
    """The sampling its makers recommend; gates themselves always ask greedily."""

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
    """In a family's file, as seen from that file; else absolute."""
    miniature: str | None = None
    native: int | None = Field(default=None, gt=0)
    """Its context where it is not the family's `context.native`."""
    serve: dict[str, Any] = Field(default_factory=dict)
    untaught: tuple[Literal["digit", "count", "which"], ...] = ()
    """Questions about pictures that a miniature was not taught; all others are asked them all."""

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
    """A known trap of the family and where it was reported."""

    what: str
    reference: str


class Unserved(toml.Record):
    """Releases of vLLM that no check can judge, because they serve nothing of the family right.

    `--model all` leaves the family out there and says so; by its name it is judged, and fails.
    """

    versions: known_defects.EndingVersions
    device: Literal["cpu", "cuda"]
    what: toml.Sentence
    reference: toml.Sentence
