"""Spoils one rank of an all-reduce, chosen by $RANK_FAULT, once the program has imported torch."""

from __future__ import annotations

import builtins
import os
import signal
import sys
from typing import Any

RANK = "1"
import_module = builtins.__import__


def spoiling_import(name: str, globals: Any = None, *arguments: Any) -> Any:  # noqa: A002 - its name
    module = import_module(name, globals, *arguments)
    if name == "torch.distributed" and (globals or {}).get("__name__") == "__main__":
        spoil(sys.modules[name], os.environ["RANK_FAULT"])
    return module


def spoil(distributed: Any, fault: str) -> None:
    all_reduce = distributed.all_reduce

    def end(number: int) -> None:
        os.kill(os.getpid(), number)

    def large(tensor: Any) -> bool:
        return bool(tensor.numel() > 1)

    def spoiled(tensor: Any) -> None:
        if large(tensor) and fault == "is-left-out":
            tensor.zero_()
        if large(tensor) and fault == "is-killed":
            end(signal.SIGKILL)
        if large(tensor) and fault == "stops":
            end(signal.SIGSTOP)
        all_reduce(tensor)

    if fault == "never-comes":
        end(signal.SIGSTOP)
    distributed.all_reduce = spoiled


if os.environ.get("RANK") == RANK and "RANK_FAULT" in os.environ:
    builtins.__import__ = spoiling_import  # type: ignore[assignment]
