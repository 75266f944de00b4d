"""Two real lanes with one difference each: the promotion gate names it and decides by it."""

from __future__ import annotations

import datetime
import shutil
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from e2e import gates, own_lane
from e2e.served import subject_of
from sweeps import named, sweep

from pytest_vllm_gates.catalog import waivers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.real

Tables = dict[str, Any]
BOOT = "boot or contracts or startup"
WORDS = "boot or reasoning or streaming"
PROMPTS = "boot or chat_template"
LONG = "boot or long_context"
CALLS = "boot or tools"
WAIVER = """\
[[waiver]]
check = "qwen3.5: boot: test_refuses_a_wrong_key*"
who = "Jane"
why = "the gateway in front asks for it"
until = {until}
"""


OPEN_DOOR = '''\
"""Hands the right key to the server, whatever a client sent."""

import os


class Open:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            key = f"Bearer {os.environ['VLLM_API_KEY']}".encode()
            kept = [pair for pair in scope["headers"] if pair[0] != b"authorization"]
            scope = {**scope, "headers": [*kept, (b"authorization", key)]}
        await self.app(scope, receive, send)
'''


@dataclass(frozen=True)
class Difference:
    """How the canary differs from the stable lane, and the expected verdict."""

    name: str
    verdict: str
    axes: set[str]
    """The axes that the bundle diff must name, and no others."""
    canary: Callable[[Path], Tables]
    gates: str = BOOT
    says: str = ""
    """A part of a reason."""
    kind: str | None = None
    """The kind of the check that distinguishes them."""
    stable: Callable[[Path], Tables] = lambda _: {}
    waiver: int | None = None
    """The days until a waiver of the failure ends."""
    drift: set[str] = field(default_factory=set)
    """Names that are listed although nothing failed."""
    warned: bool = False


def edited_template(folder: Path) -> Tables:
    """Return a lane that serves with its own template."""
    _, miniature = subject_of(gates.MODEL)
    template = folder / "chat_template.jinja"
    shutil.copy(f"{miniature.source}/chat_template.jinja", template)
    text = template.read_text(encoding="utf-8")
    template.write_text(text.replace("<|im_start|>user", "<|im_start|> user"), encoding="utf-8")
    return {"serve": {"chat_template": str(template)}}


def open_door(folder: Path) -> Tables:
    """Return a lane whose server requires no key."""
    (folder / "open_door.py").write_text(OPEN_DOOR, encoding="utf-8")
    return {
        "env": {"PYTHONPATH": str(folder)},
        "serve": {"middleware": "open_door.Open"},
    }


DIFFERENCES = [
    Difference("nothing", "HOLD", set(), lambda _: {}, says="did not run"),
    Difference(
        "a-flag",
        "REJECT",
        {"flags"},
        lambda _: {"serve": {"enable_auto_tool_choice": False}},
        gates=CALLS,
        says="tools is FAIL",
        kind="regression",
    ),
    Difference(
        "a-shorter-context",
        "HOLD",
        {"flags"},
        lambda _: {"serve": {"max_model_len": 2048}},
        gates=LONG,
        says="long_context is MISSING",
        kind="unequal",
    ),
    Difference(
        "a-template",
        "REJECT",
        {"chat template"},
        edited_template,
        gates=PROMPTS,
        says="chat_template is FAIL",
        kind="regression",
    ),
    Difference(
        "a-parser",
        "REJECT",
        {"flags"},
        lambda _: {"serve": {"reasoning_parser": "deepseek_v3"}},
        gates=WORDS,
        says="reasoning is FAIL",
        kind="regression",
    ),
    Difference(
        "a-missing-package",
        "HOLD",  # nothing of the release was seen
        set(),  # an interpreter without vLLM has no known bundle
        lambda _: {"python": sys.executable},
        gates="boot",
        says="boot is BLOCKED (infrastructure)",
    ),
    Difference(
        "a-quiet-default",
        "HOLD",
        {"feature no-prefix-caching"},  # these flags have a name
        lambda _: {"serve": {"enable_prefix_caching": False}},
        drift={"cache_config: enable_prefix_caching"},
        says="did not run",
    ),
    Difference(
        "two-axes",
        "HOLD",
        {"flags", "environment"},
        lambda _: {"serve": {"max_num_seqs": 7}, "env": {"VLLM_LOGGING_LEVEL": "DEBUG"}},
        gates="boot",
        says="did not run",
        warned=True,
    ),
    Difference(
        "a-defect-of-both",
        "HOLD",
        set(),
        open_door,
        gates="boot",
        stable=open_door,
        says="not a regression: it also fails on lane stable",
        kind="both",
    ),
    Difference(
        "a-mended-defect",
        "HOLD",
        {"environment", "flags"},
        lambda _: {},
        gates="boot",
        stable=open_door,
        says="did not run",
        kind="mended",
        warned=True,
    ),
    Difference(
        "a-waived-failure",
        "HOLD",
        {"environment", "flags"},
        open_door,
        gates="boot",
        says="did not run",
        kind="unequal",
        waiver=30,
        warned=True,
    ),
    Difference(
        "an-expired-waiver",
        "REJECT",
        {"environment", "flags"},
        open_door,
        gates="boot",
        says="waiver",
        kind="regression",
        waiver=-1,
        warned=True,
    ),
]


@pytest.mark.parametrize(
    "lane_difference", sweep(DIFFERENCES, lambda difference: difference.name, named("a-template"))
)
def test_verdict_follows_the_difference_of_the_lanes(
    tmp_path: Path, lane_difference: Difference
) -> None:
    own_lane.write(tmp_path, "stable", **lane_difference.stable(tmp_path))
    own_lane.write(tmp_path, "canary", **lane_difference.canary(tmp_path))
    if lane_difference.waiver is not None:
        text = WAIVER.format(
            until=waivers.today() + datetime.timedelta(days=lane_difference.waiver)
        )
        (tmp_path / "waivers.toml").write_text(text, encoding="utf-8")
    gates_run = gates.run(
        tmp_path, "--lane", "canary", "--against", "stable", "-m", lane_difference.gates
    )
    verdict = gates_run.verdict
    assert verdict["promotion"] == lane_difference.verdict, gates_run.output
    assert gates_run.status == {"REJECT": 1, "HOLD": 6}[lane_difference.verdict], gates_run.output
    assert any(lane_difference.says in reason for reason in verdict["reasons"]), verdict["reasons"]
    assert set(verdict["bundle"]["axes"]) == lane_difference.axes, verdict["bundle"]
    assert bool(verdict["bundle"]["warning"]) is lane_difference.warned, verdict["bundle"]
    kinds = {check["kind"] for check in verdict["against"]["checks"]}
    assert lane_difference.kind in kinds if lane_difference.kind else kinds <= {"unequal"}, verdict[
        "against"
    ]["checks"]
    assert lane_difference.drift <= {drift["name"] for drift in verdict["against"]["drift"]}
    if lane_difference.verdict == "REJECT":
        assert verdict["rollback"]["lane"] == "stable"
        assert "vllm" in verdict["rollback"]["command"]
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert lane_difference.verdict in page
