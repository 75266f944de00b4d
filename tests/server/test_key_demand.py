"""A server that requires its key does so on every route but `/health`."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.scripted import ScriptedServer

from pytest_vllm_gates.server import key_demand, launch
from server.launch_plans import lane, plan_of

if TYPE_CHECKING:
    from types import ModuleType

    from pytest_vllm_gates.catalog.family import Family

KEY = "the-key"
TESTS = Path(__file__).parents[1]
HEALTHY = TESTS / "signatures" / "healthy"
GUARDED = ("/v1", "/v2", "/inference", "/cohere")
"""The paths of vLLM's own check: vllm/entrypoints/serve/middleware/authenticate.py of 0.32."""


@pytest.fixture(scope="module")
def middleware() -> ModuleType:
    """The module as the server imports it."""
    (file,) = key_demand.OVERLAY.glob("*.py")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", KEY)


def sent_by(module: ModuleType, **scope: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return what reached the application, and what the middleware sent."""
    passed: list[Any] = []
    sent: list[dict[str, Any]] = []

    async def app(*arguments: Any) -> None:
        passed.append(arguments)

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/v1/models", "headers": [], **scope}
    asyncio.run(module.DemandKey(app)(scope, receive, send))
    if passed:
        assert passed == [(scope, receive, send)], "streams go through unchanged"
    return passed, sent


@pytest.mark.parametrize(
    "path",
    [
        "/metrics", "/docs", "/openapi.json", "/invocations", "/tokenize", "/ping", "/", "",
        "/v1/models", "/health/", "//health", "/health/../v1/models", "/healthz", "/HEALTH",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "PUT"])
def test_route_without_the_key_is_refused(middleware: ModuleType, path: str, method: str) -> None:
    passed, sent = sent_by(middleware, path=path, method=method)
    assert passed == []
    assert sent[0]["status"] == 401
    assert dict(sent[0]["headers"])[b"content-length"] == str(len(sent[1]["body"])).encode()
    assert json.loads(sent[1]["body"]) == {"error": "Unauthorized"}


@pytest.mark.parametrize(
    "value",
    [
        b"", b"Bearer", b"Bearer ", b"Bearer wrong", b"the-key", b"Basic the-key", b"Bearer the-ke",
        b"Bearer the-key ", b"Bearer  the-key", b"Bearer \xff\xfe",
    ],
)  # fmt: skip
def test_wrong_key_is_refused(middleware: ModuleType, value: bytes) -> None:
    assert sent_by(middleware, headers=[(b"authorization", value)])[0] == []


def test_second_authorization_header_does_not_count(middleware: ModuleType) -> None:
    headers = [(b"authorization", b"Bearer wrong"), (b"authorization", b"Bearer the-key")]
    assert sent_by(middleware, headers=headers)[0] == []


@pytest.mark.parametrize(
    "scope",
    [
        {"headers": [(b"host", b"x"), (b"authorization", b"Bearer the-key")]},
        {"headers": [(b"authorization", b"bearer the-key")], "path": "/metrics"},
        {"path": "/health"},
        {"path": "/health", "method": "HEAD"},
        {"type": "lifespan"},
        {"type": "websocket", "headers": [(b"authorization", b"Bearer the-key")]},
    ],
)
def test_known_request_and_health_pass(middleware: ModuleType, scope: dict[str, Any]) -> None:
    passed, sent = sent_by(middleware, **scope)
    assert len(passed) == 1
    assert sent == []


def test_websocket_without_the_key_is_closed(middleware: ModuleType) -> None:
    passed, sent = sent_by(middleware, type="websocket", path="/health")
    assert passed == []
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_server_without_a_key_does_not_boot_open(
    middleware: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_API_KEY")
    with pytest.raises(RuntimeError, match="VLLM_API_KEY is not set"):
        sent_by(middleware)


def test_command_names_the_middleware_last_and_never_a_key(qwen: Family, tmp_path: Path) -> None:
    plan = replace(
        plan_of(qwen, tmp_path),
        lane=lane("run", serve={"api_key": "of-the-lane", "middleware": "own.Middleware"}),
    )
    argv = launch.command(plan, 1, "a")
    assert "vllm_gates_key" not in " ".join(argv)
    demanding = launch.command(replace(plan, demands_key=True), 1, "a")
    assert demanding == [*argv, *key_demand.ARGUMENTS]
    assert "own.Middleware" in argv
    assert "of-the-lane" not in argv
    assert "--api-key" not in argv


def test_lane_python_finds_the_module_behind_its_own(qwen: Family, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    plan = replace(
        plan_of(qwen, tmp_path), demands_key=True, lane=lane("run", env={"PYTHONPATH": str(own)})
    )
    env = launch.environment(plan, KEY)
    assert env["PYTHONPATH"] == f"{own}{os.pathsep}{key_demand.OVERLAY}"
    module, _, name = key_demand.ARGUMENTS[1].rpartition(".")
    code = f"import {module}; print({module}.{name}.__name__)"
    process = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=own, capture_output=True, text=True, check=True
    )
    assert process.stdout == "DemandKey\n"
    assert [path.name for path in key_demand.OVERLAY.iterdir() if path.name != "__pycache__"] == [
        f"{module}.py"
    ], "a module beside it would hide the server's own of that name"


def test_commands_and_the_rust_frontend_cannot_import_the_middleware() -> None:
    python = lane().model_copy(update={"command": None, "python": "python"})
    assert key_demand.possible(python, {})
    assert key_demand.possible(python, {"VLLM_USE_RUST_FRONTEND": "0"})
    assert not key_demand.possible(python, {"VLLM_USE_RUST_FRONTEND": "1"})
    assert not key_demand.possible(lane("docker", "run", "image"), {})


def test_routes_that_answer_without_the_key_are_found() -> None:
    def answer(path: str, _: object) -> tuple[int, Any]:
        return (200, {}) if path in {"/version", "/load"} else (401, {})

    with running(ScriptedServer(answer)) as server:
        endpoint = replace(server.endpoint, api_key=KEY)
        assert key_demand.open_routes(endpoint) == ("/version", "/load")
        assert all("Authorization" not in request.headers for request in server.requests_seen)
    assert key_demand.open_routes(endpoint) == ()


def test_page_names_each_route_that_vllm_leaves_open() -> None:
    page = (TESTS.parent / "docs" / "kept-servers.md").read_text(encoding="utf-8")
    found = set()
    for log in HEALTHY.glob("*.log"):
        text = log.read_text(encoding="utf-8", errors="replace")
        found |= set(re.findall(r"Route: (\S+), Methods", text))
    left_open = {path for path in found if not path.startswith(GUARDED)}
    assert len(left_open) > 10
    assert {path for path in left_open if f"`{path}`" not in page} == set()
