"""Fixtures of the fault tests: the real server behind the proxy, and a run of the shipped gates.

The gates run in this process, so their imports, most of a short run, are paid for once.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
import syrupy
from e2e import gates as real_gates
from e2e.fixtures import gates_progress, shared
from e2e.served import Served

from faults.gates import JudgedRun, arguments, read_judged_run
from faults.upstream import Upstream
from pytest_vllm_gates.client import http
from pytest_vllm_gates.prompts.reference import ReferenceRenderer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_vllm_gates.report.progress import Progress

__all__ = ["gates_progress", "shared"]

HERE = Path(__file__).parent

# The plugins a run of the gates needs, and no warning or state of the run around it. At the end
# `unraisableexception` would collect garbage ten times over: that is for the run around it.
ALONE = (
    "-p", "pytest_vllm_gates.plugin", "-p", "syrupy", "-p", "no:cacheprovider",
    "-p", "no:faulthandler", "-p", "no:pytester", "-p", "no:unraisableexception", "--tb=no",
    "--color=no",
)  # fmt: skip


@pytest.fixture(scope="session")
def spoiling(
    gates_progress: Progress, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Served]]:
    """A real server that spoils its load on request; booted again if it died."""
    started: list[Served] = []

    def served() -> Served:
        # A process that was killed may take its time to go: what counts is whether it answers.
        if not started or http.version(started[-1].endpoint) is None:
            folder = tmp_path_factory.mktemp("spoiling")
            lane = {
                "env": {"PYTHONPATH": str(HERE)},
                "serve": {"middleware": "spoiling_app.Spoiling"},
            }
            started.append(Served(real_gates.MODEL, folder, gates_progress, lane))
            gates_progress.done()
        return started[-1]

    yield served
    for each in started:
        each.stop()


class Run(Protocol):
    """Run the shipped gates with more arguments."""

    def __call__(self, *options: str) -> JudgedRun:
        """Return the result."""


@pytest.fixture(scope="session")
def upstream(shared: Served) -> Upstream:
    """The real server behind the proxy."""
    with warnings.catch_warnings(action="ignore"):  # those of transformers' own import
        ReferenceRenderer(shared.checkpoint, {})
    endpoint = shared.endpoint
    return Upstream(endpoint.base_url, endpoint.api_key, endpoint.model)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and this process in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    upstream: Upstream,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Run the shipped gates in the project's folder, with the real server's key."""
    monkeypatch.setenv("OPENAI_API_KEY", upstream.key or "")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(syrupy, "_syrupy", None)  # its session is a global: give ours back

    def run_gates(*options: str) -> JudgedRun:
        capsys.readouterr()
        status = pytest.main([*ALONE, f"--rootdir={project}", *arguments(*options)])
        if status == pytest.ExitCode.INTERRUPTED:
            raise KeyboardInterrupt  # else Ctrl-C ends one test's gates, and the tests go on
        return read_judged_run(int(status), project, "".join(capsys.readouterr()))

    return run_gates
