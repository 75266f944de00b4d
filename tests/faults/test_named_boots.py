"""Real vLLM that does not boot, in ways a CPU has: each failure is named.

The servers are booted without preflight, which would have found most of them. More failures are in
`test_preflight_boots.py` and `test_real_boots.py`.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from e2e import gates
from e2e.served import LANE, ROOT, subject_of
from servers import running
from servers.raw import RawServer
from sweeps import sweep

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.server.launch import LaunchPlan, Server
from pytest_vllm_gates.server.patience import BootLimits
from pytest_vllm_gates.session.explain import explainer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.report.progress import Progress

pytestmark = pytest.mark.real

NAMED_WITHIN_S = 15.0
"""From the last line of the log; most of it is vLLM's shutdown: 5.1 s on two AVX2 cores."""
TEMPLATE = "{{ raise_exception('no conversation is ever right') }}"


@dataclass(frozen=True)
class BootFault:
    """A wrong boot, and the name of its failure."""

    name: str
    id: str
    serve: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    """The changes in `config.json`."""
    spoil: Callable[[Path], object] = lambda _: None
    """Changes the copy of the weights."""
    source: str = ""
    """Served in place of the copy."""


def cut_short(name: str) -> Callable[[Path], object]:
    """Return a function that cuts a file short."""

    def shorten(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])

    return shorten


BOOT_FAULTS = [
    BootFault("batch", "MAXLEN_CFG", {"max_num_batched_tokens": 8, "max_num_seqs": 16}),
    BootFault("tool-parser", "CFG", {"tool_call_parser": "no_such_parser"}),
    BootFault("no-weights", "NO_WEIGHTS", spoil=lambda at: (at / "model.safetensors").unlink()),
    BootFault("cut-weights", "CORRUPT", spoil=cut_short("model.safetensors")),
    BootFault("no-tokenizer", "TOKENIZER", spoil=lambda at: (at / "tokenizer.json").unlink()),
    BootFault("offline", "HF_OFFLINE", source="no-such-org/no-such-model"),
    BootFault(
        "remote-code",
        "REMOTE_CODE",
        config={"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}},
    ),
    BootFault(
        "template",
        "TEMPLATE_RAISES",
        spoil=lambda at: (at / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8"),
    ),
]


@pytest.fixture(scope="module")
def lane() -> Lane:
    return lanes.load(LANE, ROOT)


def booted(fault: BootFault, lane: Lane, folder: Path, progress: Progress, **serve: Any) -> Server:
    """Boot the miniature wrongly."""
    family, miniature = subject_of(gates.MODEL)
    weights = shutil.copytree(miniature.source, folder / "weights")
    config = json.loads((weights / "config.json").read_text(encoding="utf-8"))
    (weights / "config.json").write_text(json.dumps(config | fault.config), encoding="utf-8")
    fault.spoil(weights)
    ready = environment.prepare(lane, cache=files.default_cache(), progress=progress)
    env = lane.env | ({"HF_HUB_OFFLINE": "1"} if fault.source else {})
    plan = LaunchPlan(
        family=family,
        lane=lane.model_copy(update={"env": env, "serve": lane.serve | fault.serve | serve}),
        checkpoint=dataclasses.replace(miniature, source=fault.source or str(weights)),
        python=ready.python,
        overlay=lane.overlay_path,
        folder=folder / "server",
        limits=BootLimits(boot_s=300.0, stall_s=120.0),
    )
    server = Server(plan, progress, explain=explainer(folder, None))
    progress.done()
    return server


def name_of_failure(server: Server) -> str:
    """Return the name on the first line of the message; assert that the server has ended."""
    server.stop()
    failure = server.boot.failure
    assert failure, "it came up"
    assert failure.explanation, failure.explain()
    assert failure.explanation.id, failure.explain()
    first_screen = failure.explain().splitlines()[:20]
    assert failure.explanation.id in first_screen[0], failure.explain()
    assert any("next: " in line for line in first_screen), failure.explain()
    return str(failure.explanation.id)


@pytest.mark.parametrize(
    "fault",
    sweep(BOOT_FAULTS, lambda fault: fault.name, lambda fault: fault.name == "batch"),
)
def test_failed_boot_is_named(
    fault: BootFault, lane: Lane, tmp_path: Path, gates_progress: Progress
) -> None:
    server = booted(fault, lane, tmp_path, gates_progress)
    ended_at = time.time()
    log = server.boot.evidence["log"]
    assert name_of_failure(server) == fault.id, (
        server.boot.failure and server.boot.failure.explain()
    )
    assert ended_at - (tmp_path / log).stat().st_mtime < NAMED_WITHIN_S


def test_port_in_use_is_named(lane: Lane, tmp_path: Path, gates_progress: Progress) -> None:
    with running(RawServer(None)) as other_server:
        server = booted(
            BootFault("port", "PORT"), lane, tmp_path, gates_progress, port=other_server.port
        )
        assert name_of_failure(server) == "PORT"
