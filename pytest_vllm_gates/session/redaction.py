"""Keeps secrets, and prompts that must not be kept, out of pytest's output.

A test's output goes through its report: to the terminal, to JUnit's file, to an xdist controller
and to the verdict. The reports are cleaned where they are created. All other output of pytest goes
through its terminal and its log file.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from typing import TYPE_CHECKING, Any, TextIO

import pytest

from pytest_vllm_gates.bounded.characters import shown, shown_in, written
from pytest_vllm_gates.client import endpoint
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.redaction import prompts, redactor as redaction_redactor
from pytest_vllm_gates.redaction.blocks import KeyBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.options.table import Options
    from pytest_vllm_gates.redaction.redactor import Redactor

REPORT_PARTS = (
    "longrepr", "sections", "user_properties", "wasxfail", "gate_result", "gate_incidents",
    "gate_attempts",
)  # fmt: skip


class Redacting:
    """The hooks through which all output of a run passes."""

    def __init__(self, config: pytest.Config, redactor: Redactor) -> None:
        self._config = config
        self._redactor = redactor

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Wrap pytest's terminal and its log file, before the first output."""
        plugins = self._config.pluginmanager
        if reporter := plugins.get_plugin("terminalreporter"):
            reporter._tw._file = _Clean(reporter._tw._file, self._redactor)  # noqa: SLF001 - no other way in
        if log_plugin := plugins.get_plugin("logging-plugin"):
            log_plugin.log_file_handler.addFilter(self._record)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self,
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Clean a test's report, after all other hooks that add to it."""
        report = yield
        self._clean(report)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(
        self,
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Clean the report of a file that cannot be collected."""
        report = yield
        self._clean(report)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self, excrepr: Any) -> None:
        """Clean the report of an internal error, before JUnit has it."""
        clean = self._redactor.failure(str(excrepr))
        excrepr.toterminal = lambda writer: writer.line(clean)

    def _clean(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        hook = self._config.hook
        data = hook.pytest_report_to_serializable(config=self._config, report=report)
        parts = {name: data[name] for name in REPORT_PARTS if data.get(name)}
        clean_parts = {name: self._redacted(name, value) for name, value in parts.items()}
        if clean_parts != parts:
            clean_report = hook.pytest_report_from_serializable(
                config=self._config, data={**data, **clean_parts}
            )
            vars(report).update({name: getattr(clean_report, name) for name in clean_parts})

    def _redacted(self, name: str, value: Any) -> Any:
        redactor = self._redactor
        if name == "user_properties":
            return [(key, self._property(key, property_value)) for key, property_value in value]
        if name == "gate_result":
            return {
                **redactor.json(value),
                "reason": redactor.failure(value["reason"]),
                "evidence": redactor.evidence(value["evidence"]),
            }
        return shown_in(redactor.failure(value))

    def _property(self, name: str, value: Any) -> Any:
        """Return a property of a test; evidence is text, or JSON in text."""
        clean = self._redactor.json(value)
        if self._redactor.prompts.kept or not isinstance(clean, str):
            return clean
        try:
            parsed = json.loads(clean)
        except ValueError:
            parsed = clean
        redacted = self._redactor.prompts.json(parsed, name)
        return redacted if isinstance(redacted, str) else json.dumps(redacted)

    def _record(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self._redactor.failure(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = self._redactor.failure(record.exc_text)
        return True


class _Clean:
    """A text file that is written without secrets.

    Once it cannot be written (the reader has ended, as in `| head`, or the disk is full), the rest
    is dropped: the run goes on to its verdict.
    """

    def __init__(self, file: TextIO, redactor: Redactor) -> None:
        self._file = file
        self._redactor = redactor
        self._gone = False
        self._block = KeyBlock()
        self._line = ""

    def write(self, text: str) -> int:
        clean = written(self._redactor.text(text, self._block.copy()))
        self._try(lambda: self._file.write(clean))
        # A line comes in parts; whether it belongs to a private key is known at its end.
        lines, _, self._line = (self._line + text).rpartition("\n")
        self._block.follow(lines)
        return len(text)

    def flush(self) -> None:
        self._try(self._file.flush)

    def _try(self, action: Callable[[], object]) -> None:
        if self._gone:
            return
        try:
            action()
        except (OSError, ValueError):  # ValueError: it was closed
            self._gone = True
            self._discard()

    def _discard(self) -> None:
        """Discard the file's buffer: Python would write it at its end."""
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._file.fileno())
            os.close(nowhere)
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def usage_error(error: pytest.UsageError) -> pytest.UsageError:
    """Return an error of the command line without its secrets."""
    redactor = redaction_redactor.of_process(os.environ)
    return pytest.UsageError(*(shown(redactor.text(str(argument))) for argument in error.args))


def redactor(options: Options, lanes: Sequence[Lane]) -> Redactor:
    """Return the redactor of all secrets that are known before anything boots."""
    hiding = redaction_redactor.of_process(os.environ)
    hiding.learn(os.environ.get(options.api_key_env), options.load_workers.secret)
    hiding.learn_arguments([options.base_url or "", options.checkpoint or "", options.store or ""])
    for lane in lanes:
        hiding.learn_environment(lane.env)
        hiding.learn_table(lane.serve)
        hiding.learn_arguments([*(lane.command or ()), lane.base_url or ""])
        hiding.learn_table(lane.headers)
        hiding.learn(*endpoint.secrets(lane, os.environ))
    if options.redact_prompts == prompts.HASH:
        from pytest_vllm_gates.redaction.prompt_key import (  # noqa: PLC0415 - only here
            VARIABLE,
            prompt_key,
        )

        try:
            key = prompt_key()
        except OSError as error:
            raise UserError(
                f"the key for the hashes of prompts cannot be stored: {error.strerror or error}: "
                f"{error.filename}\nexport {VARIABLE}=$(openssl rand -hex 32), or set "
                "VLLM_GATES_CACHE to a writable folder"
            ) from error
        hiding.prompts = prompts.Prompts(prompts.HASH, key)
    else:
        hiding.prompts = prompts.Prompts(options.redact_prompts)
    return hiding
