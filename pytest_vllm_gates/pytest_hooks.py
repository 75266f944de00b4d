"""The pytest hooks of a run with `--model`."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.fixtures import common
from pytest_vllm_gates.fixtures.registry import FIXTURES
from pytest_vllm_gates.process import allocator
from pytest_vllm_gates.session import (
    collection as session_collection,
    finish as session_finish,
    interrupt,
    items as session_items,
    marks,
    other_plugins,
    redaction,
    replay,
    resolve as session_resolve,
    results,
    summary,
    unwritten,
    write_incident,
    xdist,
)
from pytest_vllm_gates.session.against import other_lane
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from pytest_vllm_gates.options.table import Options

DEFAULT_SOURCES = (
    pytest.Config.ArgsSource.INVOCATION_DIR,
    pytest.Config.ArgsSource.TESTPATHS,
)
# With these options pytest shows something and runs no test.
LOOKING = ("collectonly", "showfixtures", "show_fixtures_per_test", "cacheshow")


class GatesSession:
    """The hooks of one run."""

    def __init__(self, config: pytest.Config, options: Options) -> None:
        allocator.return_freed_memory()
        try:
            self.run = session_resolve.resolve(options)
        except UserError as error:
            raise pytest.UsageError(str(error)) from error
        self._order: dict[str, int] = {}
        xdist.prepare(config, self.run)
        config.stash[session_items.run_key] = self.run
        config.pluginmanager.register(
            redaction.Redacting(config, self.run.redactor), "vllm-gates-redacting"
        )
        for fixture in FIXTURES:
            name = fixture.__name__.rpartition(".")[2].replace("_", "-")
            config.pluginmanager.register(fixture, f"vllm-gates-{name}")
        config.pluginmanager.register(replay, "vllm-gates-replaying")
        config.pluginmanager.register(other_plugins.OtherPlugins(self.run), "vllm-gates-others")
        self._name_paths(config)
        self._config = config
        self._end: session_finish.End | None = None
        self._failed: set[str] = set()
        self._interrupts = interrupt.InterruptHandler(self.run)
        self._interrupts.install()

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Refuse an unknown gate name after `-m`."""
        config = session.config
        gates = verdict_gates.gate_files()
        try:
            marks.check(config.option.markexpr, config.getini("markers"), gates)
        except UserError as error:
            raise pytest.UsageError(str(error)) from error

    @pytest.hookimpl(trylast=True)  # after pytest's own collections of garbage
    def pytest_unconfigure(self) -> None:
        """Restore the Ctrl-C handler and the collector; end the processes that rendered prompts."""
        gc.unfreeze()
        self._interrupts.remove()
        if renderers := sys.modules.get("pytest_vllm_gates.prompts.starter"):
            renderers.shared().close()

    def _name_paths(self, config: pytest.Config) -> None:
        """Run the shipped gates besides the paths that were named."""
        files = verdict_gates.gate_files()
        if repro := self.run.replays.repro:
            files = {gate: path for gate, path in files.items() if gate == repro.incident.gate}
        gates = [str(path) for path in files.values()]
        if config.args_source in DEFAULT_SOURCES:
            config.args = gates
        elif not any(str(verdict_gates.GATES) in argument for argument in config.args):
            config.args = [*gates, *config.args]

    def pytest_report_header(self) -> list[str]:
        """Report which family is judged, on which lane, and why on that lane."""
        return summary.opening(self.run)

    def pytest_pycollect_makemodule(
        self, module_path: Path, parent: pytest.Collector
    ) -> pytest.Module | None:
        """Name a shipped gate after its file: outside the rootdir pytest gives it no name."""
        if module_path not in verdict_gates.gate_files().values():
            return None
        nodeid = f"{verdict_gates.GATES.name}/{module_path.name}"
        module: pytest.Module = session_collection.GateModule.from_parent(
            parent, path=module_path, nodeid=nodeid
        )
        return module

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Spread the gates over families and conversations."""
        session_items.parametrize(metafunc, self.run)
        replay.parametrize(metafunc, self.run)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Remember the order of tests in their files."""
        self._order[item.nodeid] = len(self._order)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Order tests by family and gate, with tests that end the server last, after other plugins.

        The tests of a shipped gate run in the order of its file: the first produces the results
        that all of them judge, and reports why the server died.
        """
        result = yield
        families = [subject.family.name for subject in self.run.subjects]
        gates = list(verdict_gates.gate_files().values())
        session_collection.refuse(items, gates)

        def place(item: pytest.Item) -> tuple[int, bool, int, int]:
            subject = results.subject_of(item)
            family = families.index(subject.family.name) if subject else len(families)
            last = item.get_closest_marker("ends_the_server") is not None
            if item.path not in gates:
                return family, last, len(gates), 0
            return family, last, gates.index(item.path), self._order.get(item.nodeid, 0)

        ours = [item for item in items if not _is_left_to_others(item)]
        items[:] = sorted(replay.chosen(ours, self.run), key=place)
        return result

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Record a test's requests under its name."""
        subject = results.subject_of(item)
        if subject and (tape := self.run.tapes.get(subject.family.name)):
            tape.turn_to(item.nodeid)
            item.stash[results.sends_before_key] = tape.count

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Remember deselected tests: a gate that ran only in part counts as not seen."""
        self.run.left_out.update(
            {item.nodeid: session_items.gate_of(item) for item in items if results.subject_of(item)}
        )

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember the tests to run: the verdict counts those that did not run."""
        for item in session.items:
            if subject := results.subject_of(item):
                self.run.collected.add(item.nodeid)
                if item.get_closest_marker("without_weights") is None:
                    self.run.needs_weights.add(subject.family.name)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Give a gate test its outcome."""
        results.shorten(call)
        report = yield
        results.judge(item, call, report)
        write_incident.note(item, report, self.run)
        replay.note(item, report, self.run)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Show BLOCKED, MISSING, WAIVED and the like under their own names."""
        return results.status_of(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the results."""
        if report.failed:
            self._failed.add(report.nodeid)
        if result := results.result_of(report):
            self.run.results.append(result)
            self.run.finished.add(report.nodeid)
        self.run.incidents += getattr(report, "gate_incidents", ())
        self.run.replays.attempts += getattr(report, "gate_attempts", ())

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Keep a family's tests on one worker."""
        return xdist.scheduler(config, log, [subject.family.name for subject in self.run.subjects])

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over an xdist worker's records of its boots."""
        xdist.take_over(getattr(node, "workeroutput", None) or {}, self.run)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Run the gates on the other lane first, if there is a lane to compare with."""
        self._interrupts.install()  # a conftest.py may have set a handler since
        config = session.config
        if hasattr(config, "workerinput") or config.option.collectonly:
            return
        gates = {session_items.gate_of(item) for item in session.items if results.subject_of(item)}
        other_gates = gates - {other_lane.NOT_THERE} or not session.items  # xdist's workers collect
        if self.run.against and self.run.against.name != self.run.lane.name and other_gates:
            progress = common.progress_of(config)
            folder = unwritten.working_folder(self.run)
            self.run.other = other_lane.run(config, self.run, progress, folder)
            progress.done()

    def pytest_keyboard_interrupt(self) -> None:
        """Remember that the run was cut short."""
        interrupt.note(self.run)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Decide and write the report before other plugins finish, then set the exit status."""
        xdist.hand_over(self._config, self.run)
        looking = any(getattr(self._config.option, name, None) for name in LOOKING)
        if looking or hasattr(self._config, "workerinput"):
            return (yield)
        self._end = session_finish.end(session, self.run, self._failed)
        summary.fold_tries(self._config.pluginmanager.get_plugin("terminalreporter"), self.run)
        yield
        # Other plugins combine statuses with `or`, which would make a third one of two known ones.
        session.exitstatus = self._end.status

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show one line a gate, then the verdict."""
        if self._end:
            summary.show(terminalreporter, self.run, self._end)


def _is_left_to_others(item: pytest.Item) -> bool:
    """Return whether the test's gate does not apply to the family."""
    subject = results.subject_of(item)
    if subject is None:
        return False
    family = subject.family
    others = {*verdict_gates.not_applicable(family), *verdict_gates.unasked(family)}
    return not replay.gates_of(item).isdisjoint(others)


def declare_markers(config: pytest.Config) -> None:
    """Declare one marker for each gate; its text is the gate's docstring."""
    for name, title in verdict_gates.titles().items():
        config.addinivalue_line("markers", f"{name}: {title}")
    config.addinivalue_line(
        "markers", "without_weights: vLLM's renderer serves this test without loading weights"
    )
    config.addinivalue_line(
        "markers", "ends_the_server: this test stops the family's server, and so runs last"
    )
