"""Every route of a real kept server wants its key, but for `/health`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2 as httpx
import pytest

from e2e import served
from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.checkpoints import prompt_files
from pytest_vllm_gates.client import http
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.server import ready, watchdog
from pytest_vllm_gates.server.kept import keeper, registry
from pytest_vllm_gates.server.launch import LaunchPlan
from pytest_vllm_gates.server.metrics import Metrics
from pytest_vllm_gates.session.keep_server import ServerKeeping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.client.endpoint import Endpoint

pytestmark = pytest.mark.real

ROUTE = re.compile(r"Route: (\S+), Methods: ([A-Z, ]+)")
METHODS = {"get", "post", "put", "patch", "delete"}
# vLLM's own answers without the key, in some release: no list of routes has all of them.
KNOWN = (
    "/metrics", "/metrics/", "/docs", "/redoc", "/openapi.json", "/invocations", "/tokenize",
    "/detokenize", "/ping", "/load", "/version", "/scale_elastic_ep", "/is_scaling_elastic_ep",
    "/kv_event_sources", "/generative_scoring", "/pooling", "/classify", "/score", "/rerank",
    "/pause", "/resume", "/sleep", "/wake_up", "/reset_prefix_cache", "/abort_requests",
    "/tokenizer_info", "/server_info", "/collective_rpc", "/update_weights", "/",
)  # fmt: skip


def kept(
    folder: Path, progress: object, *, renderer: bool
) -> tuple[ServerKeeping, environment.Environment]:
    family, checkpoint = served.subject_of("qwen3.5")
    lane = lanes.load(served.LANE, served.ROOT)
    ready_environment = environment.prepare(lane, cache=files.default_cache(), progress=progress)  # type: ignore[arg-type]
    plan = LaunchPlan(
        family=family,
        lane=lane,
        checkpoint=prompt_files.alone(checkpoint) if renderer else checkpoint,
        python=ready_environment.python,
        overlay=lane.overlay_path,
        folder=folder,
        limits=served.LIMITS,
        renderer=renderer,
    )
    return ServerKeeping.of(plan, ready_environment, 900.0, lambda *_: None), ready_environment


def routes(endpoint: Endpoint, log: str) -> Iterator[tuple[str, str]]:
    """Yield every method and path that the server has, by its own account and by ours."""
    for path, methods in ROUTE.findall(log):
        yield from ((method, path) for method in methods.split(", "))
    with http.client(endpoint) as client:
        paths = client.get("/openapi.json").raise_for_status().json()["paths"]
    for path, operations in paths.items():
        yield from ((method.upper(), path) for method in METHODS & operations.keys())
    for path in KNOWN:
        yield from ((method, path) for method in ("GET", "POST", "OPTIONS"))


@pytest.mark.parametrize("renderer", [False, True])
def test_every_route_wants_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, renderer: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    keeping, _ = kept(tmp_path / "run", lambda _: None, renderer=renderer)
    server = keeping.boot(lambda _: None, None, {}, {})
    try:
        endpoint = server.boot.endpoint
        assert endpoint, server.boot.failure and server.boot.failure.explain()
        assert server.process
        log = server.process.log.read_text(errors="replace")
        asked = {(method, re.sub(r"\{\w+\}", "x", path)) for method, path in routes(endpoint, log)}
        assert {("GET", "/metrics"), ("POST", "/tokenize"), ("GET", "/version")} <= asked
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            with httpx.Client(base_url=endpoint.root_url, headers=headers) as client:
                for method, path in sorted(asked):
                    status = client.request(method, path).status_code
                    wanted = {200, 405} if path == "/health" else {401}
                    assert status in wanted, f"{method} {path} without the key: {status}"
        uses_with_the_key(endpoint, renderer=renderer)
        assert server.boot.evidence["kept"]["open_routes"] == ()
        (entry,) = registry.entries(registry.root())
        assert entry.record
        for part in (entry.record.keeper, entry.record.server, *entry.record.tree):
            command_line = Path(f"/proc/{part.pid}/cmdline").read_bytes()
            assert (endpoint.api_key or "").encode() not in command_line
        for file in tmp_path.rglob("*"):
            if file.is_file() and file != entry.folder / "key":
                assert (endpoint.api_key or "") not in file.read_text(errors="replace"), file
    finally:
        server.stop()


def uses_with_the_key(endpoint: Endpoint, *, renderer: bool) -> None:
    """Check that the requests of the gates and the keeper are answered."""
    assert ready.healthy(endpoint)
    assert watchdog.health(endpoint) == "200"
    assert http.version(endpoint)
    assert http.token_ids(endpoint, "Hello")
    if not renderer:
        assert ready.first_chat(endpoint, 60.0).first_token_s
        assert keeper.served(endpoint.base_url, endpoint.api_key or "") > 0
        with Metrics(endpoint) as metrics:
            assert metrics.load().generated > 0
