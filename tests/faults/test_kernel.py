"""The wrong kernel behind a fluent answer: found by the numerics gate, repaired by the overlay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from e2e import gates

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real

MODEL = "glm/flash"
MLA = ("-m", "boot or numerics")


def test_positions_that_are_off_turn_numerics_red(tmp_path: Path) -> None:
    ran = gates.run(tmp_path, *MLA, "--without-repair", "rotary_embedding", model=MODEL)
    assert ran.outcomes()["numerics"] == "FAIL"
    assert "are computed otherwise than by the reference" in ran.reasons("numerics")
    assert ran.verdict["promotion"] == "REJECT"
    assert not any("rotary" in repair for repair in ran.verdict["lane"]["overlay"])


def test_the_repair_turns_it_green(tmp_path: Path) -> None:
    ran = gates.run(tmp_path, *MLA, model=MODEL)
    assert ran.outcomes() == {"boot": "PASS", "numerics": "PASS"}
    assert any("rotary" in repair for repair in ran.verdict["lane"]["overlay"])
