"""Where a family's facts come from, and the template that its recipe prescribes."""

from __future__ import annotations

from datetime import date

from pytest_vllm_gates.catalog import toml


class FactSource(toml.Record):
    """Where some facts of a family or a member can be read."""

    facts: toml.Sentence
    """Which facts."""
    reference: str
    looked_up: date


class PrescribedTemplate(toml.Record):
    """A chat template that is to be served in place of the checkpoint's own.

    vLLM's wheel does not contain its examples, so `[serve]` cannot name the file.
    """

    file: str
    where: str
    """Where it can be had."""
    why: toml.Sentence
    reference: str
