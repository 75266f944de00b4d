"""Renders prompts with untrusted templates and tokenizers: a separate program, with limits.

    python -I render_program.py FD [FOLDER...]

`starter.py` starts it. The program imports transformers once and opens no checkpoint itself: for
each checkpoint, and again after each one that was over a limit, it forks a worker within
milliseconds. FD is its control socket; the FOLDERs are added to the import path. For each byte with
a file descriptor beside it, it forks a worker that serves that descriptor and answers with the
worker's id. For `{"end": id}` it kills that worker and answers with its wait status. It ends with
the socket, and its workers end with it.

A worker loads one checkpoint's tokenizer, never with code of the checkpoint's, and answers requests
(`OPERATIONS`). Memory is limited with RLIMIT_AS, by so much more than the process has then; files
cannot be written. Time is limited by `worker.py`, which ends the worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

if __name__ == "__main__":
    # At the end: no module beside the package may replace one of the standard library.
    sys.path += [str(Path(__file__).parents[2]), *sys.argv[2:]]

from pytest_vllm_gates.prompts import frames

PR_SET_PDEATHSIG = 1
MIB = 2**20
STATM = Path("/proc/self/statm")
ORDER_BYTES = 4096
ENDING_POLLS, POLL_S = 20, 0.005
REQUEST_BYTES = 2**28
"""Requests come from pytest, which limits their size."""


class Loaded:
    """One checkpoint's tokenizer and template."""

    def __init__(self) -> None:
        self._tokenizer: Any = None
        self._limits: dict[str, int] = {}

    def load(self, folder: str, template: str | None, limits: dict[str, int]) -> dict[str, Any]:
        """Load the tokenizer of a folder; a `template` replaces its own."""
        from transformers import AutoTokenizer  # noqa: PLC0415 - imported by the starter

        self._limits = limits
        _limit_memory(limits["load_mib"])
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        except Exception as error:  # noqa: BLE001 - it raises anything
            lines = str(error).strip().splitlines() or [type(error).__name__]
            return {"error": lines[0][: limits["refusal_characters"]]}
        if template is not None:
            self._tokenizer.chat_template = template
        own = self._tokenizer.chat_template
        _limit_memory(limits["memory_mib"])
        return {
            "template": str(own) if own else None,
            "eos": self._tokenizer.eos_token_id,
        }

    def content_in_parts(self, *, with_tools: bool) -> dict[str, Any]:
        """Return whether vLLM passes content in parts; requests with tools may differ."""
        from pytest_vllm_gates.prompts.content_format import takes_parts  # noqa: PLC0415 - jinja2

        chosen = self._tokenizer.get_chat_template(None, tools=[{}] if with_tools else None)
        return {"parts": takes_parts(chosen)}

    def write(
        self, messages: list[Any], tools: list[Any] | None, options: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the text of a prompt, or the template's refusal."""
        from jinja2 import TemplateSyntaxError  # noqa: PLC0415 - as above

        try:
            text = self._tokenizer.apply_chat_template(
                messages, tools=tools, tokenize=False, **options
            )
        except (MemoryError, RecursionError):
            raise
        except TemplateSyntaxError as error:
            return {"refused": self._cut(error), "line": error.lineno}
        except Exception as error:  # noqa: BLE001 - as vLLM does, whatever a template raises
            return {"refused": self._cut(error)}
        return {"over": "characters"} if self._too_long(text) else {"text": text}

    def encode(self, text: str) -> dict[str, Any]:
        """Return a text's token ids, and where in the text each token ends."""
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ends = [end for _, end in encoded["offset_mapping"]]
        return {"ids": list(encoded["input_ids"]), "ends": ends}

    def ids(self, text: str) -> dict[str, Any]:
        """Return a text's token ids."""
        return {"ids": list(self._tokenizer(text, add_special_tokens=False)["input_ids"])}

    def decode(self, token_id: int) -> dict[str, Any]:
        """Return the text of one token."""
        text = self._tokenizer.decode([token_id])
        return {"over": "characters"} if self._too_long(text) else {"text": text}

    def _too_long(self, text: str) -> bool:
        return len(text) > self._limits["characters"]

    def _cut(self, error: Exception) -> str:
        text = str(error) or type(error).__name__
        most = self._limits["refusal_characters"]
        return text if len(text) <= most else f"{text[:most]}…"


OPERATIONS = ("load", "content_in_parts", "write", "encode", "ids", "decode")


def serve(connection: socket.socket) -> None:
    """Answer requests, `[operation, arguments]` each, until the connection ends."""
    loaded = Loaded()
    while (request := frames.receive(connection, REQUEST_BYTES)) is not None:
        operation, arguments = request
        if operation not in OPERATIONS:
            return
        answer: Mapping[str, Any]
        try:
            answer = getattr(loaded, operation)(**arguments)
        except MemoryError:
            answer = {"over": "memory"}
        except RecursionError:
            answer = {"over": "recursion"}
        except Exception as error:  # noqa: BLE001 - a hostile tokenizer's
            answer = {"failed": f"{type(error).__name__}: {error}"[:ORDER_BYTES]}
        connection.settimeout(None)
        frames.send(connection, answer)


def fork(control: socket.socket, handle: int) -> int:
    """Fork a worker that serves a socket; return its id."""
    starter = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == starter:
            control.close()
            for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
                resource.setrlimit(limit, (0, 0))
            serve(socket.socket(fileno=handle))
    finally:
        os._exit(0)


def main() -> None:
    """Import transformers, then fork and end workers until the control socket ends."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        from jinja2 import nodes  # noqa: F401, PLC0415 - for all workers
        from transformers import AutoTokenizer  # noqa: F401, PLC0415
        from transformers.utils import chat_template_utils  # noqa: F401, PLC0415
    except Exception as error:  # noqa: BLE001 - an installation may be broken in any way
        frames.send(control, {"error": f"{type(error).__name__}: {error}"[:ORDER_BYTES]})
        return
    frames.send(control, {"ready": True})
    gc.freeze()  # pages of imported modules stay shared
    workers: set[int] = set()
    try:
        while True:
            data, handles, _, _ = socket.recv_fds(control, ORDER_BYTES, 1)
            if not data:
                return
            if handles:
                pid = fork(control, handles[0])
                os.close(handles[0])
                workers.add(pid)
                frames.send(control, {"worker": pid})
            else:
                pid = json.loads(data)["end"]
                frames.send(control, {"status": _end(pid) if pid in workers else 0})
                workers.discard(pid)
    finally:
        for pid in workers:
            _end(pid)


def _end(pid: int) -> int:
    """Kill a worker that has not ended yet; return its wait status."""
    for _ in range(ENDING_POLLS):  # a crashing worker closes its socket before it has ended
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        time.sleep(POLL_S)
    else:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    return status


def _limit_memory(mib: int) -> None:
    """Let this process take so many MiB more; without effect where the system has no such limit."""
    with contextlib.suppress(OSError, ValueError):
        pages = int(STATM.read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + mib * MIB
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _prctl(option: int, value: int) -> None:
    """Call prctl(2) on Linux; elsewhere the workers end with the starter."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
