"""Passes a command's output on to its log without secrets. Standard library only, as `guard.py`."""

from __future__ import annotations

import os
import sys

from pytest_vllm_gates.descriptors import readable
from pytest_vllm_gates.redaction import prompts
from pytest_vllm_gates.redaction.redactor import of_process
from pytest_vllm_gates.redaction.stream import Stream

IDLE_S = 0.25
READ_BYTES = 2**16


def pass_on(source: int, target: int) -> None:
    """Copy `source` to `target` without secrets, until `source` ends.

    Keeps reading on errors: a server whose output is not read blocks.
    """
    try:
        redactor = of_process(os.environ, sys.argv[2:])
        if os.environ.get(prompts.VARIABLE, prompts.KEEP) != prompts.KEEP:
            redactor.prompts = prompts.Prompts(prompts.DROP)
        stream = Stream(redactor)
        while True:
            ready = readable([source], IDLE_S)
            data = os.read(source, READ_BYTES) if ready else b""
            clean = stream.feed(data) if data else stream.end() if ready else stream.idle()
            while clean:
                clean = clean[os.write(target, clean) :]
            if ready and not data:
                return
    finally:
        while os.read(source, READ_BYTES):
            pass
