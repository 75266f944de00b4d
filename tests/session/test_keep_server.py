"""A kept server answers only its owner, and a run attaches only to the server that was kept."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest
from server.launch_plans import LIMITS, lane
from servers import guarded, running, stub
from servers.scripted import ScriptedServer

from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.catalog.lane import Lane, StartCommand
from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.environment.environment import Environment
from pytest_vllm_gates.server.kept import private, registry
from pytest_vllm_gates.server.kept.keeper import served
from pytest_vllm_gates.server.launch import LaunchPlan, Server
from pytest_vllm_gates.session import keep_server
from pytest_vllm_gates.session.keep_server import ServerKeeping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.server.kept.registry import KeptEntry

    Printed = pytest.CaptureFixture[str]

ROUTES = (
    "/metrics", "/docs", "/redoc", "/openapi.json", "/invocations", "/tokenize", "/detokenize",
    "/ping", "/load", "/version", "/scale_elastic_ep", "/v1/models", "/", "/no-such-route",
)  # fmt: skip
COMMAND = lane(sys.executable, "-I", "-S", stub.__file__, "{port}")
PYTHON = Lane(
    name="python", file=Path("/x.toml"), title="x", python=sys.executable,
    start=StartCommand(server=(guarded.__file__,)),
)  # fmt: skip


@pytest.fixture
def keeping(
    tmp_path: Path, qwen: Family, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Lane], ServerKeeping]]:
    """A boot that keeps its server; all end with the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def make(lane: Lane) -> ServerKeeping:
        python = Path(sys.executable) if lane.python else None
        plan = LaunchPlan(
            family=qwen, lane=lane, checkpoint=Checkpoint(name="weights", source="org/weights"),
            python=python, overlay=None, folder=tmp_path / "run", limits=LIMITS,
        )  # fmt: skip
        return ServerKeeping.of(plan, Environment(python), 900.0, lambda *_: None)

    yield make
    for entry in entries():
        registry.stop(entry, force=True)


def entries() -> list[KeptEntry]:
    return [*registry.entries(registry.root())]


def kept(server_keeping: ServerKeeping) -> Server:
    """Boot a server that is kept and no longer in use."""
    server = server_keeping.boot(lambda _: None, None, {}, {})
    assert server.boot.endpoint, server.boot.failure
    server.process.release()  # type: ignore[union-attr]
    return server


def rewrite(entry: KeptEntry, **changes: Any) -> None:
    path = entry.folder / "record.json"
    private.write(path, json.dumps(json.loads(path.read_text()) | changes))


def test_every_route_of_a_kept_server_wants_the_key(
    keeping: Callable[[Lane], ServerKeeping],
) -> None:
    server = kept(keeping(PYTHON))
    endpoint = server.boot.endpoint
    assert endpoint
    for key in ("", "Bearer", "Bearer wrong", "Basic wrong"):
        with httpx.Client(
            base_url=endpoint.root_url, headers={"Authorization": key} if key else {}
        ) as client:
            for method in ("GET", "POST", "OPTIONS"):
                for route in ROUTES:
                    reply = client.request(method, route, json={} if method == "POST" else None)
                    assert reply.status_code == 401, (method, route, key)
                    assert reply.json() == {"error": "Unauthorized"}
            assert client.get("/health").status_code == 200, "the one exception"
    assert server.boot.evidence["kept"]["open_routes"] == ()
    assert served(endpoint.base_url, endpoint.api_key or "") == 3, "its keeper can poll it"
    assert served(endpoint.base_url, "wrong") == 0
    match = keeping(PYTHON).find()
    assert match, "a later run attaches"
    match[0].process.release()  # type: ignore[union-attr]


def test_open_routes_of_a_command_lane_are_named(
    keeping: Callable[[Lane], ServerKeeping], qwen: Family
) -> None:
    server = kept(keeping(COMMAND))

    class Subject:
        family = qwen

    lines = [*keep_server.lines(Subject, server.boot)]  # type: ignore[arg-type]
    assert lines[-1] == (
        f"qwen3.5: {entries()[0].name} answers requests without its key at /version: other users "
        "of this machine can reach it (docs/kept-servers.md)"
    )


def test_key_is_neither_in_a_command_line_nor_in_another_file(
    keeping: Callable[[Lane], ServerKeeping], tmp_path: Path, capsys: Printed
) -> None:
    server = kept(keeping(PYTHON))
    (entry,) = entries()
    assert entry.record
    key = registry.key(entry)
    assert server.boot.endpoint
    assert key == server.boot.endpoint.api_key
    parts = (entry.record.keeper, entry.record.server, *entry.record.tree)
    pids = [part.pid for part in parts]
    assert len(pids) >= 3
    for command_line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = command_line.read_bytes()
        except OSError:  # gone meanwhile
            continue
        assert key.encode() not in text, command_line
    for pid in pids:
        assert Path(f"/proc/{pid}/environ").stat().st_mode & 0o077 == 0
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or path == entry.folder / "key" or key not in path.read_text()
    assert entry.folder.stat().st_mode & 0o777 == 0o700
    for name in ("key", "record.json", "hold"):
        assert (entry.folder / name).stat().st_mode & 0o777 == 0o600
    assert main(["servers"]) == main(["servers", "--json"]) == 0
    assert key not in capsys.readouterr().out
    assert key not in json.dumps(entry.record.model_dump())
    assert "flag --middleware" in entry.record.fingerprint


def test_another_program_at_the_port_gets_neither_key_nor_prompt(
    keeping: Callable[[Lane], ServerKeeping],
) -> None:
    kept(keeping(PYTHON))
    (entry,) = entries()
    assert entry.record
    assert entry.record.listens
    with running(ScriptedServer()) as stranger:
        rewrite(entry, base_url=stranger.endpoint.base_url)
        another = keeping(PYTHON)
        assert another.find() is None
        assert stranger.requests_seen == []
    assert another.passed_over == [
        f"{entry.name} was ended: it no longer has port {stranger.server_port}"
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"base_url": "http://203.0.113.7:80/v1"},
        {"base_url": "http://127.0.0.1@203.0.113.7:80/v1"},
        {"base_url": "http://127.0.0.1:80/v1\n"},
        {"name": "../../x"},
        {"booted": "yesterday"},
        {"booted": "2026-11-20T10:00:00"},
        {"keeper": {"pid": -1, "started": 1}},
        {"unknown": 1},
    ],
)
def test_record_that_points_elsewhere_is_not_believed(
    keeping: Callable[[Lane], ServerKeeping], changes: dict[str, Any]
) -> None:
    kept(keeping(PYTHON))
    (entry,) = entries()
    rewrite(entry, **changes)
    os.utime(entry.folder, (1, 1))
    (entry,) = entries()
    assert entry.state is registry.KeptState.UNREADABLE
    assert keeping(PYTHON).find() is None


def test_invalid_boot_times_are_not_used(keeping: Callable[[Lane], ServerKeeping]) -> None:
    kept(keeping(PYTHON))
    (entry,) = entries()
    rewrite(entry, times={"\x1b[2J": 1.0})
    another = keeping(PYTHON)
    assert another.find() is None
    (reason,) = another.passed_over
    assert reason.startswith(f"{entry.name} is not used: its record has no valid boot times")
    assert "\x1b" not in reason


def test_log_of_another_folder_is_not_copied(
    keeping: Callable[[Lane], ServerKeeping], tmp_path: Path
) -> None:
    kept(keeping(PYTHON))
    (entry,) = entries()
    secret = tmp_path / "secret.txt"
    secret.write_text("not of this server")
    assert entry.record
    rewrite(entry, evidence={**entry.record.evidence, "log": str(secret)})
    (entry,) = entries()
    assert registry.log_of(entry) is None
    (entry.folder / "secret.txt").symlink_to(secret)
    assert registry.log_of(entry) is None
    match = keeping(PYTHON).find()
    assert match
    match[0].process.release()  # type: ignore[union-attr]
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_symlink() or "not of this server" not in path.read_text()


def test_without_a_key_demand_the_flag_is_a_difference(
    keeping: Callable[[Lane], ServerKeeping],
) -> None:
    server_keeping = keeping(PYTHON)
    assert server_keeping.plan.demands_key
    assert not keeping(COMMAND).plan.demands_key
    rust = PYTHON.model_copy(update={"env": {"VLLM_USE_RUST_FRONTEND": "1"}})
    assert not keeping(rust).plan.demands_key
    assert replace(server_keeping.plan, demands_key=False).lane == PYTHON
