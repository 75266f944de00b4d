"""The sources of a family's facts, and the template that its recipe prescribes."""

from __future__ import annotations

from datetime import date

from pytest_vllm_gates.catalog import toml


class FactSource(toml.Record):
    """A source of some facts of a family or a member."""

    facts: toml.Sentence
    """The facts that it covers."""
    reference: str
    looked_up: date


class PrescribedTemplate(toml.Record):
    """A chat template to serve instead of the checkpoint's own.

    vLLM's wheel does not contain its examples, so `[serve]` cannot name the file.
    """

    file: str
    where: str
    """Its address."""
    why: toml.Sentence
    reference: str
