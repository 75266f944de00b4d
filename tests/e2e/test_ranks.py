"""A server on two ranks of this machine answers like one on a single rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e import gates

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real, pytest.mark.every_core]


def test_two_ranks_pass_with_the_goldens_of_one(tmp_path: Path) -> None:
    ran = gates.run(
        tmp_path, "--lane", "cpu-tp2", "-m", "boot or startup or chat_template or streaming"
    )
    assert ran.status == 0, ran.output
    outcomes = ran.outcomes()
    assert outcomes.pop("streaming") in {"PASS", "KNOWN"}, ran.output
    assert set(outcomes.values()) == {"PASS"}, ran.output
    (family,) = ran.verdict["families"]
    tried = family["boot"]["evidence"]["all_reduce"]
    assert tried["state"] == "ok"
    assert tried["world_size"] == 2
    assert "all-reduce over 2 ranks: right, by gloo over " in ran.output
    log = (tmp_path / "report" / gates.MODEL / "server.log").read_text(encoding="utf-8")
    assert "world_size=2 rank=1 local_rank=1" in log
