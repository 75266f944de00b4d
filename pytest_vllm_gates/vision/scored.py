"""The prompts with pictures whose log-probabilities are compared with those of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.vision import cases, encodings
from pytest_vllm_gates.vision.cases import SEEN, one
from pytest_vllm_gates.vision.types import Scene

if TYPE_CHECKING:
    from pytest_vllm_gates.vision.cases import VisionCase

OUTPUT_TOKENS = 8
ORDERED = cases.ORDERS[0]
RESIZED = one(Scene("colour", ("yellow",), 101, 77))
"""A picture that every processor resizes."""
CASES = (SEEN[0], SEEN[1], SEEN[4], SEEN[8], ORDERED, RESIZED)
"""A colour, a wide picture, a place, stripes, two pictures, and one that is resized."""


def body(case: VisionCase) -> dict[str, Any]:
    """Return a case's request, without model and sampling; its pictures are PNG."""
    return case.body(encodings.png_url)


def pictures() -> dict[str, list[str]]:
    """Return the data URLs of each case's pictures by its name, in order."""
    return {case.name: [encodings.png_url(scene) for scene in case.scenes] for case in CASES}
