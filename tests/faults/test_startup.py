"""Real servers that boot and answer but differ from the plan: a small cache, a leak."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from e2e import gates, own_lane
from e2e.served import LANE

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real

# A middleware before the app that keeps 20 MiB of every request. Some sixty are sent.
LEAK = """\
class Leaking:
    kept = []

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope.get("method") == "POST":
            self.kept.append(b"x" * (20 << 20))
        await self.app(scope, receive, send)
"""


@pytest.mark.slow
def test_leak_fails(tmp_path: Path) -> None:
    (tmp_path / "leaking_app.py").write_text(LEAK, encoding="utf-8")
    leaking = {"middleware": "leaking_app.Leaking"}
    own_lane.write(tmp_path, "leaking", env={"PYTHONPATH": str(tmp_path)}, serve=leaking)
    ran = gates.run(tmp_path, "--lane", "leaking", "-m", "boot or long_context")
    assert ran.outcomes() == {"boot": "PASS", "long_context": "FAIL"}, ran.output
    words = ran.reasons("long_context")
    assert "the server's memory grew by" in words
    assert "it will run out of memory" in words


def test_changed_start_and_small_cache_fail(tmp_path: Path) -> None:
    # With the shipped lane's name: it is compared with that lane's recorded start.
    changed = {"enable_prefix_caching": False, "num_gpu_blocks_override": 30}
    own_lane.write(tmp_path, LANE, serve=changed)
    arguments = ("--lane", LANE, "--stall-timeout", "30", "-m", "boot or startup or long_context")
    ran = gates.run(tmp_path, *arguments)
    outcomes = ran.outcomes()
    assert outcomes == {"boot": "PASS", "startup": "FAIL", "long_context": "FAIL"}, ran.output
    words = ran.reasons("startup")
    assert "enable_prefix_caching: True, now False" in words
    assert "tokens of KV cache: planned" in words
    words = ran.reasons("long_context")
    assert "4 requests of 4096 tokens are planned at once, and the KV cache fits" in words


@pytest.mark.slow
def test_flag_without_effect_fails(tmp_path: Path) -> None:
    # vLLM replaces the first with a line in its log, and drops the second without one.
    asked = {"attention_backend": "TRITON_ATTN", "async_scheduling": True}
    own_lane.write(tmp_path, "asking", serve=asked)
    ran = gates.run(tmp_path, "--lane", "asking", "-m", "boot or startup")
    assert ran.outcomes() == {"boot": "PASS", "startup": "FAIL"}, ran.output
    words = ran.reasons("startup")
    assert "Cannot use AttentionBackendEnum.TRITON_ATTN backend on CPU." in words
    assert "--async-scheduling = True: the log does not report it, but on cpu vLLM" in words
    assert "--enforce-eager" not in words
