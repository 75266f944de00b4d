"""The recipe of one miniature: its architecture, its tokens, its mode of thinking."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.checkpoints.miniatures import RECIPES, MiniatureError, names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


@dataclass(frozen=True)
class ThinkingSwitch:
    """The template's switch and its default; a miniature without one always thinks."""

    switch: str | None = None
    default: bool = True

    def kwargs(self, *, thinks: bool) -> dict[str, bool]:
        """Return the chat-template keyword that switches thinking on or off."""
        return {self.switch: thinks} if self.switch else {}


@dataclass(frozen=True)
class Tokens:
    """The tokens with a special meaning."""

    special: tuple[str, ...]
    markers: tuple[str, ...]
    eos: str
    pad: str
    config_eos: str
    stop: tuple[str, ...]
    bos: str | None = None
    adds_bos: bool = False
    appended: str | None = None  # the token that the tokenizer appends to a text
    split: str | None = None  # the pattern of what merges stay within; None is GPT-2's
    nfc: bool = False
    words: tuple[str, ...] = ()  # ordinary text that is a single token
    names: Mapping[str, str] = field(default_factory=dict)  # the tokenizer's names of some

    @property
    def added(self) -> tuple[str, ...]:
        """All of them, in the order of their ids."""
        return self.special + self.markers + self.words

    @property
    def reserved(self) -> tuple[str, ...]:
        """Tokens that a text may spell without their meaning."""
        return self.special + self.markers


@dataclass(frozen=True)
class KnownDeviation:
    """A defect of released vLLM that affects one taught answer."""

    answers: tuple[str, ...]  # of "whole" and "streamed"
    versions: str
    why: str


@dataclass(frozen=True)
class Training:
    """How the weights are made."""

    learning_rate: float = 3e-3
    epochs: int = 400
    seed: int = 0
    both_orders: bool = False  # teach declarations with `required` before `properties`, too
    initial: Mapping[str, float] = field(default_factory=dict)  # by the end of a weight's name
    slower_below: float = 0.1  # nats per token; below this loss the learning rate falls with it
    least_rate: float = 0.2  # share of the learning rate that is left where the loss is small
    pictures: int = 8  # drawn at random for each step, where the miniature sees
    sight_steps: int = 0  # of pictures alone, before the dialogues


@dataclass(frozen=True)
class Eyes:
    """The eyes of a miniature: its vision tower, and how pictures become patches."""

    tower: Mapping[str, Any]
    """The `vision_config` of the model."""
    processor: Mapping[str, Any]
    """`preprocessor_config.json`."""
    processor_class: str
    pad: str
    """The token that a prompt has for each place of a picture."""
    ids: Mapping[str, str]
    """The model's keys for tokens, and the tokens."""
    place: str = ""
    """The template's text for a picture; by default the pad."""
    tools: bool = True
    """Whether calls about pictures are taught."""
    untaught: tuple[str, ...] = ()
    """Kinds of questions about pictures that are not taught; the family's file has them, too."""
    written: str = "PADS"
    """The processor's text in its place; `PADS` are the pads of all places."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Additional keys of the model's config."""
    weight_names: Mapping[str, str] = field(default_factory=dict)
    """How tensors' names begin as transformers writes them, and as they are published."""
    video_processor: Mapping[str, Any] | None = None
    """`video_preprocessor_config.json`; None without videos."""
    whole_processor: Mapping[str, Any] | None = None
    """`processor_config.json`; None if it would be empty."""

    def expanded(self, prompt: str, counts: Iterable[int]) -> str:
        """Return a rendered prompt with the tokens of its pictures; `counts` is how many each."""
        first, *others = prompt.split(self.place or self.pad)
        pads = [self.pad * count for count in counts]
        if len(pads) != len(others):
            raise MiniatureError(f"{len(others)} places for {len(pads)} pictures in {prompt!r}")
        pairs = zip(pads, others, strict=True)
        return first + "".join(self.written.replace("PADS", pad) + text for pad, text in pairs)


@dataclass(frozen=True)
class Recipe:
    """One miniature, before it is built."""

    name: str
    end_of_turn: str
    tokens: Tokens
    config: Mapping[str, Any]
    thinking: ThinkingSwitch | None = None
    thinking_with_tools: bool = True
    skip: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, KnownDeviation] = field(default_factory=dict)
    base: str | None = None
    training: Training = field(default_factory=Training)
    vision: Eyes | None = None
    embeds: bool = False
    """Whether it makes vectors, scores or classes, and does not generate."""
    labels: tuple[str, ...] = ()
    """The labels of one that classifies; one label is a score of pairs."""

    def template(self, file_name: str) -> Path:
        """Return the path of one of its templates: its own, or its base's."""
        own_file = RECIPES / self.name / file_name
        return own_file if own_file.is_file() or not self.base else RECIPES / self.base / file_name


def answering() -> tuple[str, ...]:
    """Return the names of those that generate, and do not make vectors."""
    return tuple(name for name in names() if not load(name).embeds)


def load(name: str) -> Recipe:
    """Read one recipe."""
    file = RECIPES / name / "recipe.toml"
    if not file.is_file():
        raise MiniatureError(f"no miniature {name!r}\nknown ones: {', '.join(names())}")
    values = tomllib.loads(file.read_text(encoding="utf-8"))
    if "base" in values:
        # A table replaces the base's whole table of that name; missing keys are the base's.
        base = RECIPES / values["base"] / "recipe.toml"
        values = {**tomllib.loads(base.read_text(encoding="utf-8")), **values}
    tokens = _tuples(values.pop("tokens"))
    thinking = values.pop("thinking", None)
    vision = values.pop("vision", None)
    try:
        return Recipe(
            name=name,
            tokens=Tokens(**tokens),
            known={id_: KnownDeviation(**_tuples(k)) for id_, k in values.pop("known", {}).items()},
            thinking=ThinkingSwitch(**thinking) if thinking else None,
            vision=Eyes(**_tuples(vision)) if vision else None,
            training=Training(**values.pop("training", {})),
            labels=tuple(values.pop("labels", ())),
            **values,
        )
    except TypeError as error:
        raise MiniatureError(f"{file}: {error}\ncompare it with the other recipes") from None


def _tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
