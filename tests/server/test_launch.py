"""A boot returns a server that answers or a failure with its reason, and leaves nothing."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.raw import RawServer
from survivors import alive, none_of, until

from pytest_vllm_gates.client import ready
from pytest_vllm_gates.process.guard import descendants
from pytest_vllm_gates.process.run_queue import RunQueue
from pytest_vllm_gates.server import launch
from pytest_vllm_gates.server.patience import BootLimits
from server.launch_plans import LIMITS, lane, plan_of

if TYPE_CHECKING:
    from conftest import Fakes
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.server.types import Failure


@pytest.fixture
def plan(tmp_path: Path, qwen: Family) -> launch.LaunchPlan:
    return plan_of(qwen, tmp_path / "server")


Boots = Callable[..., launch.Server]


@pytest.fixture
def boots(plan: launch.LaunchPlan) -> Iterator[Boots]:
    """Boot a fake server with the given faults; it ends with the test."""
    started: list[launch.Server] = []

    def boot(faults: str = "", limits: BootLimits = LIMITS, **arguments: Any) -> launch.Server:
        faulty = plan.lane.model_copy(update={"env": {"FAKE": faults}})
        progress = arguments.pop("progress", [])
        planned = replace(plan, lane=faulty, limits=limits)
        started.append(launch.Server(planned, progress.append, **arguments))
        return started[-1]

    yield boot
    for server in started:
        server.stop(0.2)


def failure(server: launch.Server) -> Failure:
    """Return why a boot failed; assert that no process of it is left."""
    assert server.boot.failure is not None
    assert server.boot.endpoint is None
    assert not server.alive()
    return server.boot.failure


def test_server_that_answers_a_chat_has_booted(boots: Boots) -> None:
    progress: list[str] = []
    server = boots(progress=progress)
    assert server.boot.failure is None
    assert server.boot.endpoint is not None
    assert server.boot.endpoint.base_url.startswith("http://127.0.0.1:")
    assert re.fullmatch(r"qwen3\.5-[0-9a-f]{8}", server.boot.endpoint.model)
    times = server.boot.times
    assert times is not None
    assert times.first_token_s and times.health_s and times.first_chat_s
    assert 0 < times.first_token_s < times.first_chat_s
    assert times.health_s < times.first_chat_s < LIMITS.boot_s
    assert server.boot.evidence["boot_attempts"] == 1
    until(Path(server.boot.evidence["log"]).read_text, "the log stays empty")
    assert re.match(r"qwen3\.5: booting weights on lane fake, \d+ s", progress[0])


def test_stopping_a_server_ends_all_of_it(boots: Boots) -> None:
    server = boots("spawns")
    assert server.process is not None
    tree = [server.process.pid, *descendants(server.process.pid)]
    assert len(tree) == 4, "two guards, the server, and what it spawned"
    assert server.stop() == 128 + 15
    assert none_of(tree)


def test_two_boots_have_two_keys_and_two_aliases(boots: Boots) -> None:
    endpoint, other_endpoint = boots().boot.endpoint, boots().boot.endpoint
    assert endpoint is not None
    assert other_endpoint is not None
    assert endpoint.model != other_endpoint.model
    assert endpoint.api_key != other_endpoint.api_key
    assert len(endpoint.api_key or "") >= 32


def test_the_key_is_never_shown(boots: Boots) -> None:
    server = boots()
    assert server.boot.endpoint is not None
    key = server.boot.endpoint.api_key
    assert key is not None
    assert key not in repr(server.boot)
    assert key not in " ".join(server.boot.evidence["command"])
    assert key not in Path(server.boot.evidence["log"]).read_text()


def test_server_that_dies_while_booting_is_reported_with_log(boots: Boots) -> None:
    server = boots("dies")
    message = failure(server).explain()
    assert message.startswith("the server ended before it was ready (exit status 1)")
    assert "    ValueError: No available memory for the cache blocks." in message
    assert f"whole log: {server.boot.evidence['log']}" in message


def test_missing_command_is_reported(plan: launch.LaunchPlan) -> None:
    server = launch.Server(replace(plan, lane=lane("/nowhere/docker", "run")), lambda _: None)
    boot_failure = failure(server)
    assert boot_failure.what == "the server ended before it was ready (exit status 127)"
    assert boot_failure.excerpt == ("cannot start /nowhere/docker: No such file or directory",)


@pytest.mark.parametrize(
    ("faults", "pattern"),
    [
        ("chat-500", "the first chat was answered 500: .*no chat today"),
        ("chat-hangs", r"the first chat (returned nothing for|did not end within) 3 s"),
    ],
)
def test_a_server_that_fails_its_first_prompt_has_not_booted(
    boots: Boots, faults: str, pattern: str
) -> None:
    limits = replace(LIMITS, stall_s=3.0) if faults == "chat-hangs" else LIMITS
    message = failure(boots(faults, limits)).what
    assert re.search("the server came up healthy and failed its first prompt: " + pattern, message)


def test_server_that_dies_of_its_first_prompt_is_reported(
    boots: Boots,
) -> None:
    boot_failure = failure(boots("dies-after:0"))
    assert boot_failure.what.startswith("the server came up healthy and failed its first prompt")
    assert boot_failure.what.endswith("(exit status 9)")
    assert any("an illegal memory access" in line for line in boot_failure.excerpt)


def test_silent_server_ends_at_the_stall_limit(boots: Boots) -> None:
    started_at = time.monotonic()
    message = failure(boots("silent", BootLimits(boot_s=60.0, stall_s=1.0))).what
    assert re.match(r"the server made no progress for \d+ s \(--stall-timeout\)", message)
    assert time.monotonic() - started_at < 20


def test_server_starved_by_other_processes_is_not_a_regression(
    boots: Boots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunQueue, "waited", lambda _: 0.8)
    starved = failure(boots("silent", BootLimits(boot_s=60.0, stall_s=1.0)))
    assert starved.of_infrastructure
    assert "for 80% of the time that it was ready to run no processor was free" in starved.what
    assert "next: run again on an idle machine" in starved.explain()
    monkeypatch.setattr(RunQueue, "waited", lambda _: 0.2)
    assert not failure(boots("silent", BootLimits(boot_s=60.0, stall_s=1.0))).of_infrastructure


def test_chatty_server_ends_at_the_total_limit(boots: Boots) -> None:
    message = failure(boots("chatters", BootLimits(boot_s=1.0, stall_s=10.0))).what
    assert re.match(r"the server was not ready after \d+ s \(--boot-timeout\)", message)


def test_server_that_died_while_serving_is_reported(boots: Boots) -> None:
    server = boots()
    assert server.alive()
    assert server.process is not None
    server.process.stop(0)
    assert not server.alive()
    assert server.died().what == (
        "the server died while serving (killed with SIGKILL: often the kernel, out of host memory)"
    )


@pytest.fixture
def taken_port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a server that never answers."""
    monkeypatch.setattr(ready, "PROBE_TIMEOUT_S", 0.2)
    with running(RawServer(None)) as server:
        yield server.port


def test_port_in_use_is_retried_with_another(
    boots: Boots, taken_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = launch.free_port
    ports = iter([taken_port])
    monkeypatch.setattr(launch, "free_port", lambda: next(ports, None) or free())
    progress: list[str] = []
    server = boots(progress=progress)
    assert server.boot.failure is None
    assert server.boot.evidence["boot_attempts"] == 2
    assert "qwen3.5: another process took the port; trying another port" in progress
    log = Path(server.boot.evidence["log"])
    assert log.name == "server-2.log"
    assert "Address already in use" in log.with_name("server.log").read_text()


@pytest.mark.slow
def test_port_in_use_on_every_try_is_reported(
    boots: Boots, taken_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "free_port", lambda: taken_port)
    server = boots()
    assert server.boot.evidence["boot_attempts"] == launch.PORT_TRIES
    assert any("Address already in use" in line for line in failure(server).excerpt)


def test_other_server_on_the_port_is_not_ours(
    boots: Boots, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = fakes(names=("qwen3.5", "qwen3.5-00000000"))
    monkeypatch.setattr(launch, "free_port", lambda: stranger.server_port)
    message = failure(boots("silent", BootLimits(boot_s=1.0, stall_s=9.0))).what
    assert "was not ready" in message
    assert stranger.chats == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug")])
def test_an_interrupted_boot_leaves_nothing(plan: launch.LaunchPlan, error: BaseException) -> None:
    tree: list[int] = []
    env = {"FAKE": "spawns,silent"}
    before = set(descendants(os.getpid()))  # such as multiprocessing's resource tracker

    def interrupt(_: str) -> None:
        tree[:] = [pid for pid in descendants(os.getpid()) if pid not in before]
        if len(tree) >= 4:  # two guards, the server, and what it spawned
            raise error

    started_at = time.monotonic()
    with pytest.raises(type(error)):
        launch.Server(replace(plan, lane=plan.lane.model_copy(update={"env": env})), interrupt)
    assert none_of(tree)
    assert time.monotonic() - started_at < LIMITS.boot_s


def test_growing_log_is_passed_on(boots: Boots) -> None:
    chunks: list[str] = []
    boots("slow", on_log=chunks.append)
    assert "a fake boots" in "".join(chunks)


def test_an_old_log_is_not_read_for_this_boots(boots: Boots, plan: launch.LaunchPlan) -> None:
    plan.folder.mkdir(parents=True)
    (plan.folder / "server.log").write_text("ImportError: of yesterday\n")
    assert not any("yesterday" in line for line in failure(boots("dies")).excerpt)


def test_a_free_port_is_free() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", launch.free_port()))


def test_survivors_lists_this_process() -> None:
    assert alive(os.getpid())
    until(lambda: True)
