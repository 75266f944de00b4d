"""A fleet of two shards on real vLLM: planned, run side by side, merged to one verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

BIN = Path(sys.executable).parent
LIMIT_S = 900.0


@pytest.mark.slow  # a boot for each shard
@pytest.mark.every_core  # parts of a shard share them
@pytest.mark.parametrize("engine", ["loop", "xdist"])
def test_shards_are_merged_to_one_verdict(engine: str, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}

    def run(*words: str) -> int:
        return subprocess.run(
            words, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, timeout=LIMIT_S, check=False
        ).returncode

    assert run("vllm-gates", "matrix", "--families", "llama,phi", "--gates", "boot,stop",
               "--as", engine) == 0  # fmt: skip
    if engine == "loop":
        assert run("sh", "fleet.sh") == 0
    else:
        assert run("pytest", "-n", "2", "--dist", "worksteal", "test_fleet.py") == 0
        assert run("vllm-gates", "merge", "shards", "--report", "fleet-report") == 0
    verdict = json.loads((tmp_path / "fleet-report" / "fleet-verdict.json").read_text("utf-8"))
    assert verdict["promotion"] == "PROMOTE"
    assert [cell["family"] for cell in verdict["cells"]] == ["llama", "phi"]
    assert all({*cell["gates"]} == {"boot", "stop"} for cell in verdict["cells"])
