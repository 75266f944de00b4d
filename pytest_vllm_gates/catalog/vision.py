"""A family's facts about images: their placeholder in a prompt, number of tokens, and place."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pytest_vllm_gates.catalog import toml

PADS = "PADS"
"""The placeholder in `Vision.written` for the tokens of an image."""


class Vision(toml.Record):
    """How a family reads images. Sizes are the published processor's; a checkpoint has its own."""

    pad: str
    """The token that the prompt has once for each feature of an image."""
    rule: Literal["patches", "frames", "budget", "fixed"]
    """How an image's size decides its tokens.

    `patches`: as Qwen's processor, between the least and the most pixels. `frames`: as GLM's, the
    same, but an image counts as two frames. `budget`: as Gemma 4's, as many of `tokens` as the
    aspect ratio allows. `fixed`: as Gemma 3's, always `tokens`.
    """
    patch: int = Field(default=0, ge=0)
    """Pixels of a patch's side."""
    merge: int = Field(default=1, ge=1)
    """Patches of a token's side."""
    least_pixels: int = Field(default=0, ge=0)
    most_pixels: int = Field(default=0, ge=0)
    tokens: int = Field(default=0, ge=0)
    """Tokens of each image, or the most that one has."""
    wrapped: bool = False
    """Whether the processor writes more around an image than the template does."""
    written: str = ""
    """The processor's text for an image, if known.

    `PADS` are the image's tokens; by default the text is only those.
    """
    roles: tuple[Literal["system", "user", "assistant", "tool"], ...] = ("user",)
    """The roles whose messages may contain images."""
    video: bool = False
    audio: bool = False

    @model_validator(mode="after")
    def _has_its_rule(self) -> Vision:
        needs = {"budget": ("patch", "tokens"), "fixed": ("tokens",)}.get(
            self.rule, ("patch", "most_pixels")
        )
        if not all(getattr(self, name) for name in needs):
            raise ValueError(f"rule {self.rule!r} needs {' and '.join(needs)}")
        if self.written and PADS not in self.written:
            raise ValueError(f"written has no {PADS}: {self.written!r}")
        return self
