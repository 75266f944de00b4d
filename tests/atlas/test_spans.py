"""Since when and until when, in words."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.atlas import spans
from pytest_vllm_gates.atlas.types import AtlasState

STATES = {"w": AtlasState.WRONG, "r": AtlasState.RIGHT, "-": AtlasState.NOT_SEEN}


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ("www", "fails 0.1.0 to 0.3.0"),
        ("wwr", "fails 0.1.0 to 0.2.0, right since 0.3.0"),
        ("rrw", "right up to 0.2.0, fails in 0.3.0"),
        ("rwr", "right up to 0.1.0, fails in 0.2.0, right since 0.3.0"),
        ("wrw", "fails in 0.1.0, right in 0.2.0, fails in 0.3.0"),
        ("w-r", "fails in 0.1.0, right since 0.3.0; not seen: 0.2.0"),
        ("--w", "fails in 0.3.0; not seen: 0.1.0, 0.2.0"),
        ("---", "not seen"),
    ],
)
def test_states_are_written_as_spans(states: str, words: str) -> None:
    listed = [(f"0.{place}.0", STATES[state]) for place, state in enumerate(states, 1)]
    assert spans.words(listed) == words
