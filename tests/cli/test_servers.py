"""Kept servers are listed, and stopped by name, by process id or all at once."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

import pytest
from servers import stub
from survivors import none_of, until

from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.catalog.lane import Lane
from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.environment.environment import Environment
from pytest_vllm_gates.server.kept import registry as kept_registry
from pytest_vllm_gates.server.kept.process import send
from pytest_vllm_gates.server.launch import LaunchPlan, Server
from pytest_vllm_gates.server.patience import BootLimits
from pytest_vllm_gates.session.keep_server import ServerKeeping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.server.kept.registry import KeptEntry

    Keep = Callable[..., Server]

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def keep(tmp_path: Path, qwen: Family, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keep]:
    """Boot a fake server that stays; all end with the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def start(lane: str = "fake") -> Server:
        plan = LaunchPlan(
            family=qwen,
            lane=Lane(
                name=lane, file=tmp_path / "x.toml", title="x",
                command=(sys.executable, "-I", "-S", stub.__file__, "{port}"),
            ),
            checkpoint=Checkpoint(name="weights", source="org/weights"),
            python=None,
            overlay=None,
            folder=tmp_path / "run",
            limits=BootLimits(20.0, 10.0),
        )  # fmt: skip
        keeping = ServerKeeping.of(plan, Environment(None), 900.0, lambda *_: None)
        return keeping.boot(lambda _: None, None, {}, {})

    yield start
    for entry in entries():
        kept_registry.stop(entry, force=True)


def entries() -> list[KeptEntry]:
    return [*kept_registry.entries(kept_registry.root())]


def release(server: Server) -> None:
    server.process.release()  # type: ignore[union-attr]


def test_empty_registry_has_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["servers"]) == 0
    assert capsys.readouterr().out == "no server is kept: pytest --model NAME --keep-server\n"
    assert main(["servers", "stop", "--all"]) == 0
    assert main(["servers", "stop"]) == 2
    assert not [*tmp_path.iterdir()], "looking made something"


def test_kept_server_is_listed_with_all_its_facts(keep: Keep, capsys: Printed) -> None:
    server = keep()
    assert main(["servers"]) == 0
    assert "on lane fake, in use" in capsys.readouterr().out
    release(server)
    assert main(["servers"]) == 0
    head, booted, log = capsys.readouterr().out.splitlines()
    (entry,) = entries()
    assert entry.record
    assert re.fullmatch(
        rf"{entry.name}  qwen3\.5 \(weights\) on lane fake, idle for \d s, ends in 15 min", head
    )
    url = re.escape(entry.record.base_url)
    assert re.fullmatch(rf" +booted \d+ s ago, pid {entry.record.server.pid}, {url}", booted)
    assert log.strip() == f"log: {entry.folder / 'server.log'}"
    assert "a fake boots" in (entry.folder / "server.log").read_text()

    assert main(["servers", "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert document["state"] == "idle"
    assert document["idle_limit_s"] == 900
    assert document["ends_in_s"] <= 900
    key = (entry.folder / "key").read_text()
    assert key
    assert key not in json.dumps(document)


@pytest.mark.parametrize("by", ["name", "server", "keeper", "only", "all"])
def test_server_is_stopped_by_name_or_process_id(keep: Keep, capsys: Printed, by: str) -> None:
    server = keep()
    release(server)
    (entry,) = entries()
    assert entry.record
    which = {
        "name": entry.name,
        "server": str(entry.record.server.pid),
        "keeper": str(entry.record.keeper.pid),
        "only": "",
        "all": "--all",
    }[by]
    assert main(["servers", "stop", *filter(None, [which])]) == 0
    assert capsys.readouterr().out == f"{entry.name} ended\n"
    assert none_of(
        [
            entry.record.server.pid,
            entry.record.keeper.pid,
            *(process_id.pid for process_id in entry.record.tree),
        ]
    )
    assert entries() == []


def test_server_in_use_is_stopped_only_by_force(keep: Keep, capsys: Printed) -> None:
    server = keep()
    (entry,) = entries()
    assert main(["servers", "stop", entry.name]) == 1
    assert "is in use by a run: end the run first, or add --force" in capsys.readouterr().out
    assert server.alive()
    assert main(["servers", "stop", entry.name, "--force"]) == 0
    assert server.process
    assert server.process.wait(10) == 128 + 15
    assert "a fake boots" in server.process.log.read_text(), "its run has its log still"
    release(server)
    assert entries() == []


def test_name_is_required_among_several_servers(keep: Keep, capsys: Printed) -> None:
    for lane in ("one", "other"):
        release(keep(lane))
    first, second = (entry.name for entry in entries())
    assert main(["servers", "stop"]) == 2
    assert f"several servers are kept: {first}, {second}" in capsys.readouterr().err
    assert main(["servers", "stop", "nonsense"]) == 2
    assert "no kept server has the name 'nonsense'" in capsys.readouterr().err
    assert main(["servers", "stop", second]) == 0
    assert [entry.name for entry in entries()] == [first]
    assert main(["servers", "stop", "--all"]) == 0
    assert entries() == []


def test_dead_server_is_listed_with_its_log_until_cleared(keep: Keep, capsys: Printed) -> None:
    server = keep()
    release(server)
    (entry,) = entries()
    assert entry.record
    send(entry.record.tree[0], 9)
    until(lambda: entries()[0].state is kept_registry.KeptState.DIED)
    assert main(["servers"]) == 0
    output = capsys.readouterr().out
    assert "on lane fake, died (exit status 137)" in output
    assert f"log: {entry.folder / 'server.log'}" in output
    assert main(["servers", "stop", entry.name]) == 0
    assert entries() == []


def test_idle_servers_give_way_and_used_ones_do_not(keep: Keep) -> None:
    used, idle = keep("one"), keep("other")
    release(idle)
    assert [message.partition(", ")[2] for message in kept_registry.give_way()] == [
        "qwen3.5 on lane other"
    ]
    assert used.alive()
    assert not idle.alive()
