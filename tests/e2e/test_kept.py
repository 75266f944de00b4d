"""A real kept server serves the next run quickly, and ends on request."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from e2e import gates

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.real

SOME = ("--keep-server=5m", "-k", "test_boots or test_answers_sensibly or test_starts_as")
COMMAND = "import sys; from pytest_vllm_gates.cli.main import main; sys.exit(main())"


@pytest.fixture
def state(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a folder of kept servers of this test's own."""
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    yield env
    servers(env, "stop", "--all", "--force")


def servers(env: dict[str, str], *arguments: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", COMMAND, "servers", *arguments],
        env=os.environ | env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return process.stdout


def test_second_run_attaches_to_the_kept_server(state: dict[str, str], tmp_path: Path) -> None:
    first = gates.run(tmp_path, *SOME, env=state)
    assert first.status == 0, first.output
    kept_evidence = first.verdict["families"][0]["boot"]["evidence"]["kept"]
    assert not kept_evidence["attached"]
    assert f"{kept_evidence['name']}  qwen3.5 (miniature) on lane cpu, idle for" in servers(state)

    second = gates.run(tmp_path, *SOME, env=state)
    assert second.status == 0, second.output
    boot = second.verdict["families"][0]["boot"]
    assert boot["evidence"]["kept"]["name"] == kept_evidence["name"], second.output
    assert boot["evidence"]["kept"]["attached"]
    assert boot["times"] == first.verdict["families"][0]["boot"]["times"]
    assert second.outcomes() == first.outcomes()
    assert second.outcomes()["startup"] == "PASS", "its log goes back to its boot"
    assert second.verdict["promotion"] == "HOLD"
    assert re.search(
        rf"qwen3\.5: uses the kept server {kept_evidence['name']}, booted \d+ ", second.output
    )

    assert servers(state, "stop") == f"{kept_evidence['name']} ended\n"
    assert "no server is kept" in servers(state)
