"""The keeper ends its server when it is no longer used, and not before."""

from __future__ import annotations

import ast
import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING

import pytest
from servers import running
from servers.raw import RawServer
from servers.scripted import ScriptedServer, Text
from survivors import none_of, until

from pytest_vllm_gates.server.kept import keeper
from pytest_vllm_gates.server.kept.hold import Hold
from pytest_vllm_gates.server.kept.process import ENDED_BY_GUARD, KEEPER, KeptProcess
from pytest_vllm_gates.server.kept.record import KeptRecord
from pytest_vllm_gates.server.kept.registry import this_host

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from servers.scripted import ServerAnswer, ServerRequest

SLEEPS = "import time; print('it sleeps', flush=True); time.sleep(600)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "kept"
    path.mkdir()
    return path


@pytest.fixture
def process(folder: Path, tmp_path: Path) -> Iterator[KeptProcess]:
    """A process that will be kept, and is not yet."""
    hold = Hold(folder)
    assert hold.acquire()
    hold.idle_limit_s = 0.2
    kept_process = begin(folder, hold, tmp_path, SLEEPS)
    yield kept_process
    kept_process.stop(0.0)
    until(lambda: none_of([kept_process.pid, kept_process.keeper.pid]))


def begin(folder: Path, hold: Hold, tmp_path: Path, code: str) -> KeptProcess:
    argv = [sys.executable, "-I", "-S", "-c", code]
    return KeptProcess.start(
        folder, hold, argv, env={"A": "b"}, log=tmp_path / "run" / "server.log"
    )


def keep_serving(process: KeptProcess, url: str = "http://127.0.0.1:9/v1") -> None:
    """Have a process kept."""
    record = KeptRecord(
        name="x", family="f", lane="l", checkpoint="c", base_url=url, model="m", renderer=False,
        server=process.server, keeper=process.keeper, tree=(), host=this_host(), booted="",
        times={}, evidence={"log": str(process.original)}, inventory={}, fingerprint={},
    )  # fmt: skip
    process.keep(record, "key")


def test_keeper_imports_only_the_standard_library_and_neighbours() -> None:
    tree = ast.parse(KEEPER.read_text())
    names = {
        str(node.module) if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    own_modules = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}
    assert own_modules == {
        "pytest_vllm_gates.descriptors",
        "pytest_vllm_gates.server.kept",  # private.py
        "pytest_vllm_gates.server.kept.hold",
        "pytest_vllm_gates.process.process",
    }


@pytest.mark.parametrize("status", [0, 3])
def test_keeper_returns_the_status_of_the_command(
    folder: Path, tmp_path: Path, status: int
) -> None:
    hold = Hold(folder)
    hold.acquire()
    process = begin(folder, hold, tmp_path, f"raise SystemExit({status})")
    assert process.wait(10) == status
    assert process.stop() == status
    assert not folder.exists()


def test_stopped_server_leaves_only_its_log(process: KeptProcess, folder: Path) -> None:
    until(lambda: process.log.exists() and "it sleeps" in process.log.read_text())
    assert process.log.is_symlink()
    assert process.stop() == 128 + 15
    assert "it sleeps" in process.log.read_text()
    assert not process.log.is_symlink()
    assert not folder.exists()


def test_server_that_is_not_kept_ends_with_its_starter(process: KeptProcess, folder: Path) -> None:
    process._hang_up()
    assert process.wait(10) is not None
    until(lambda: none_of([process.keeper.pid]))
    assert folder.exists(), "its user still has it"


def test_kept_server_ends_when_idle(process: KeptProcess, folder: Path) -> None:
    keep_serving(process)
    assert process.wait(1.0) is None
    process.release()
    until(lambda: none_of([process.pid, process.keeper.pid]))
    assert not folder.exists()


def test_kept_server_ends_when_its_folder_is_removed(process: KeptProcess, folder: Path) -> None:
    keep_serving(process)
    (folder / "record.json").unlink()
    assert process.wait(10) is not None


def test_killed_keeper_is_explained(process: KeptProcess) -> None:
    keep_serving(process)
    os.kill(process.keeper.pid, 9)
    assert process.wait(10) == ENDED_BY_GUARD


class MetricsServer(ScriptedServer):
    """Answers with a counter that goes down to 0, by one with every request."""

    counter = 0

    def answer_to(self, _: ServerRequest) -> ServerAnswer:
        self.counter -= self.counter > 0
        line = f'vllm:prompt_tokens_total{{engine="0"}} {self.counter}.0'
        return 200, Text(f"# HELP x\n{line}\nother 7\n")


@pytest.fixture
def metrics() -> Iterator[MetricsServer]:
    with running(MetricsServer()) as server:
        yield server


def test_requests_are_seen_in_the_servers_metrics(metrics: MetricsServer) -> None:
    url = metrics.endpoint.base_url
    metrics.counter = 5
    assert keeper.served(url, "k") == 4
    assert keeper.served(url, "k") == 3
    assert metrics.requests_seen[-1].headers["Authorization"] == "Bearer k"
    assert keeper.served("http://127.0.0.1:9/v1", "k") == 0


def test_requests_of_others_keep_the_server_up(
    process: KeptProcess, metrics: MetricsServer
) -> None:
    metrics.counter = 6
    keep_serving(process, metrics.endpoint.base_url)
    process.release()
    until(lambda: metrics.counter <= 2)
    assert process.poll() is None
    until(lambda: none_of([process.pid]))
    assert metrics.counter == 0


@pytest.mark.parametrize("values", [("NaN",), ("+Inf",), ("3.0", "NaN"), ("x",)])
def test_invalid_figures_do_not_keep_a_server_up(values: tuple[str, ...]) -> None:
    lines = "".join(f"vllm:prompt_tokens_total {value}\n" for value in values)
    with running(ScriptedServer(lambda *_: (200, Text(lines)))) as server:
        url = server.endpoint.base_url
        assert keeper.served(url, "k") == keeper.served(url, "k") == (3 if "3.0" in values else 0)


def test_refused_metrics_request_gives_zero() -> None:
    with running(ScriptedServer(lambda *_: (401, Text("vllm:prompt_tokens_total 3\n")))) as server:
        assert keeper.served(server.endpoint.base_url, "k") == 0


@pytest.mark.parametrize(("piece", "pause_s"), [(b"x", 0.05), (b"x 1\n" * 2**14, 0.0), (b"", 60.0)])
@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_server_that_drips_or_floods_blocks_the_keeper_up_to_its_limit(
    monkeypatch: pytest.MonkeyPatch, head: bytes, piece: bytes, pause_s: float
) -> None:
    monkeypatch.setattr(keeper, "ASK_S", 0.5)
    monkeypatch.setattr(keeper, "MOST_BYTES", 2**20)
    ended = time.monotonic() + 20

    def answer(connection: socket.socket, _: bytes) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(head)
            while time.monotonic() < ended and not server.closing.wait(pause_s):
                connection.sendall(piece)

    with running(RawServer(answer)) as server:
        begun = time.monotonic()
        assert keeper.served(server.endpoint.base_url, "k") == 0
        assert time.monotonic() - begun < 5
