"""Keeps the verdict independent of other plugins' actions and output at the end of a run.

pytest prints no summary when a plugin raises in `pytest_sessionfinish`, as its JUnit reporter does
on a full disk.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.junitxml import xml_key

from pytest_vllm_gates.files import WriteError
from pytest_vllm_gates.session import results, unwritten

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from pytest_vllm_gates.session.run import Run

CALLER = "pluggy."
SYRUPY, SNAPSHOT = "syrupy", "snapshot"
BENCHMARKS = ".benchmarks"
"""The default folder of pytest-benchmark, without `--benchmark-storage`."""


class OtherPlugins:
    """The innermost hook around other plugins' hooks at the end."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Note an `OSError` of another plugin, and go on."""
        try:
            ended: object = yield
        except OSError as error:
            plugin, module = _raiser(error.__traceback__)
            target = getattr(plugin, "logfile", None) or error.filename or module
            problem = WriteError.of(Path(target), error)
            unwritten.note(self._run, f"{module}: {problem}")
            _withdraw(session.config, plugin)
            # The rest of pytest's own hook, which was skipped after the plugin that failed.
            session._setupstate.teardown_exact(None)  # noqa: SLF001 - no other way
            return None
        else:
            _hush_syrupy(session)
            return ended

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Remove the folder that pytest-benchmark makes at its start, if it saved nothing."""
        session = getattr(config, "_benchmarksession", None)
        path = getattr(getattr(session, "storage", None), "path", None)
        if isinstance(path, Path) and path.name == BENCHMARKS:
            with contextlib.suppress(OSError):  # not empty: something was saved, now or earlier
                path.rmdir()


def _hush_syrupy(session: pytest.Session) -> None:
    """Leave out syrupy's summary if only gates used it.

    Its hint, `--snapshot-update`, does nothing for goldens.
    """
    uses = [item for item in session.items if SNAPSHOT in getattr(item, "fixturenames", ())]
    if all(results.subject_of(item) for item in uses):
        session.config.pluginmanager.unregister(name=SYRUPY)


def _raiser(trace: TracebackType | None) -> tuple[Any, str]:
    """Return the plugin that raised, None for a module's function, and the name of its module."""
    plugin, module, called = None, "another plugin", False
    while trace:
        name = trace.tb_frame.f_globals.get("__name__", "")
        if called and not name.startswith(CALLER):
            plugin, module = trace.tb_frame.f_locals.get("self"), name
        called = name.startswith(CALLER)
        trace = trace.tb_next
    return plugin, module


def _withdraw(config: pytest.Config, plugin: Any) -> None:
    """Undo the part of its file that pytest's JUnit reporter has written, and its summary line."""
    reporter = config.stash.get(xml_key, None)
    if reporter is None or plugin is not reporter:
        return
    path = Path(reporter.logfile)
    if path.is_file():
        path.unlink(missing_ok=True)
    del config.stash[xml_key]
    config.pluginmanager.unregister(reporter)
