"""One checkpoint's tokenizer and template, in a separate process with limits."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.prompts import frames
from pytest_vllm_gates.prompts.limits import (
    CHARACTERS_VARIABLE,
    LOAD_LIMIT_S,
    LOAD_MIB,
    MEMORY_VARIABLE,
    REFUSAL_CHARACTERS,
    SET_BY,
)
from pytest_vllm_gates.prompts.starter import ANSWER_BYTES, shared
from pytest_vllm_gates.prompts.types import Endless, OverLimit

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.prompts.limits import RenderLimits
    from pytest_vllm_gates.prompts.starter import Forked

BYTES_A_CHARACTER = 32
"""Bytes of an answer: a character is up to 12 bytes of JSON, a token id and its end up to 20."""
MEMORY_SET_BY = SET_BY.format(MEMORY_VARIABLE)
CHARACTERS_SET_BY = SET_BY.format(CHARACTERS_VARIABLE)


class WorkerFailed(Exception):  # noqa: N818 - the caller names what it was doing
    """A worker could not execute a request; the text is one line."""


class RenderWorker:
    """One checkpoint's tokenizer and template in a separate process.

    `title` names both in messages. A worker that exceeds a limit is ended, and the next request
    starts another one.
    """

    def __init__(
        self, title: str, folder: Path, template: str | None, limits: RenderLimits
    ) -> None:
        """Load the tokenizer; raises `WorkerFailed` with the reason if that fails."""
        self.title = title
        self._limits = limits
        self._order = {
            "folder": str(folder.absolute()),
            "template": template,
            "limits": {
                "load_mib": LOAD_MIB,
                "memory_mib": limits.memory_mib,
                "characters": limits.characters,
                "refusal_characters": REFUSAL_CHARACTERS,
            },
        }
        self._lock = threading.RLock()
        self._forked: list[Forked] = []
        weakref.finalize(self, _abandon, self._forked)  # if it is never closed
        self.loaded = self._load()

    def request(self, operation: str, limit_s: float, **arguments: Any) -> dict[str, Any]:
        """Return the answer to one request.

        Raises `OverLimit`, `Endless` after `limit_s` seconds, and `WorkerFailed`.
        """
        with self._lock:
            if not self._forked:
                self._load()
            return self._request(operation, limit_s, arguments)

    def close(self) -> None:
        """End the process."""
        _end_all(self._forked)

    def _load(self) -> dict[str, Any]:
        self._forked.append(shared().get().fork())
        try:
            loaded = self._request("load", LOAD_LIMIT_S, self._order)
        except OverLimit as error:
            raise WorkerFailed(
                f"it needs more than {LOAD_LIMIT_S:.0f} s, or {LOAD_MIB} MiB of memory"
            ) from error
        if "error" in loaded:
            _end_all(self._forked)
            raise WorkerFailed(loaded["error"])
        return loaded

    def _request(self, operation: str, limit_s: float, arguments: dict[str, Any]) -> dict[str, Any]:
        connection = self._forked[-1].connection
        deadline = time.monotonic() + limit_s
        most_bytes = ANSWER_BYTES + BYTES_A_CHARACTER * self._limits.characters
        try:
            connection.settimeout(limit_s)
            with contextlib.suppress(BrokenPipeError):
                frames.send(connection, [operation, arguments])
            answer = frames.receive(connection, most_bytes, deadline)
        except TimeoutError as error:
            _end_all(self._forked)
            raise Endless(f"still busy after {limit_s:g} s") from error
        except (ValueError, frames.TooLarge) as error:
            _end_all(self._forked)
            raise OverLimit(self._over("characters")) from error
        except BaseException:
            _end_all(self._forked)
            raise
        if not isinstance(answer, dict):
            status = _end_all(self._forked)
            name = os.waitstatus_to_exitcode(status)
            how = signal.Signals(-name).name if name < 0 else f"exit status {name}"
            raise OverLimit(
                f"ended its process ({how}): it needs more than {self._limits.memory_mib} MiB of "
                f"memory{MEMORY_SET_BY}, or is nested too deep"
            )
        if "over" in answer:
            _end_all(self._forked)
            raise OverLimit(self._over(answer["over"]))
        if "failed" in answer:
            raise WorkerFailed(answer["failed"])
        return answer

    def _over(self, what: str) -> str:
        if what == "memory":
            return f"needs more than {self._limits.memory_mib} MiB of memory{MEMORY_SET_BY}"
        if what == "recursion":
            return f"calls itself, or is nested, more than {sys.getrecursionlimit()} deep"
        return f"writes more than {self._limits.characters:,} characters{CHARACTERS_SET_BY}"


def _abandon(workers: list[Forked]) -> None:
    while workers:
        workers.pop().abandon()


def _end_all(workers: list[Forked]) -> int:
    """End the workers; return the wait status of the last, 0 if there is none."""
    status = 0
    while workers:
        status = workers.pop().end()
    return status
