"""Patterns that mark a log itself: the beginning of a boot, its end, and errors.

No signature has these patterns; the sieve looks for them together with those of the signatures.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_vllm_gates.server.log_line import LogLine

# The first lines that a server prints.
BANNER = r"vLLM API server version|non-default args: |^args: Namespace\("
# The server got a request to shut down: later errors do not count.
SHUTDOWN = (
    r"\[shutdown\] (?:API server: (?:stopping|signalling)|EngineCore: trigger received)"
    r"|^Shutting down$|Received signal (?:2|15|SIGINT|SIGTERM)\b"
)
# The server answers requests from here on.
READY = r"Application startup complete|Uvicorn running on"
# How far a start has come.
LOADING = (
    r"Starting to load model|Loading (?:safetensors|pt|bin) checkpoint|[Ll]oading weights took"
    r"|Model loading took|Compiling a graph|torch\.compile took|Available KV cache memory"
    r"|KV cache size: |Capturing CUDA graph|Initializing an? (?:V\d )?LLM engine"
    r"|Using max model len|Resolved architecture|Downloading shards|world_size=\d+ rank="
)
ENGINE = re.compile(r"Initializing an? (?:V\d )?LLM engine")
# A line between two exceptions, one of which caused the other.
CHAIN = r"(?:During handling of|The) above exception(?:,| was)"
ERROR = (
    r"(?:^|[\s:'(])(?:[A-Za-z_.]*(?:Error|Exception|Interrupt)\b[:(]|error: |Fatal |fatal error)"
    r"|^(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)$"
    r"|^cannot start |Segmentation fault|\bKilled\b|^terminate called "
)
# GPUs that need special fixes.
DEVICE = (
    r"\bGB10\b|DGX[ -]Spark|\bsm_12[01]|\bSM12[01x]\b|compute_12[01]|RTX PRO \d000|RTX 50\d0"
    r"|capability:? \(?12(?:[.,]? ?[01])?\b"
)
SPARK = re.compile(
    r"\bGB10\b|DGX[ -]Spark|\bsm_?121a?\b|\bSM121\b|compute_121|capability:? \(?12[.,]? ?1\b"
)
MARKS = (BANNER, SHUTDOWN, READY, LOADING, CHAIN, ERROR, DEVICE)

# Lines that do not report an error: they warn about the future, or repeat the past.
NO_ERROR = re.compile(
    r"DeprecationWarning|FutureWarning|UserWarning|^\s*warnings\.warn|non-default args|Namespace\("
)
# How a line without a level begins if it reports an error: a quoted error may have been retried.
BEGINS = re.compile(
    r"\s*(?:[|+] *)?(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception|Interrupt)\b(?:[:(]|$)"
    r"|(?:\S+: )*(?:fatal )?error: |(?:\S+: )*[Ff]atal |cannot start |terminate called "
    r"|.*(?:Segmentation fault|\bKilled\b)"
)
# The user interrupted, or a task was cancelled: the log has the cause before this line.
GAVE_UP = re.compile(r"(?:\w+\.)*(?:KeyboardInterrupt|SystemExit|CancelledError|GeneratorExit)\b")
ERROR_LEVELS = frozenset({"", "ERROR", "CRITICAL", "FATAL"})
# These lines quote a client's request, which may contain any text.
QUOTES = re.compile(
    r"Received request |Generated response |Adding request |Request \S+ (?:details|arrived)"
)
FRAME = re.compile(r'\s*[|]?\s*File "[^"]+", line \d+')
CODE_INDENT = 4
FRAME_LINES = 6
QUIET_LEVELS = frozenset({"DEBUG", "INFO", "WARNING"})
WARNS = re.compile(
    r"\[?[WI]\d{4} |.{0,200}\b(?:User|Runtime|Future)Warning\b|WARNING[: ]|Warning: "
)


def warns(line: LogLine) -> bool:
    """Return whether a line is only a warning, by its level or its words."""
    return line.level in QUIET_LEVELS or WARNS.match(line.text) is not None


def tells_an_error(line: LogLine) -> bool:
    """Return whether a line that the mark `ERROR` matches reports an error."""
    if line.level not in ERROR_LEVELS or NO_ERROR.search(line.text):
        return False
    return bool(line.level) or BEGINS.match(line.text) is not None


def is_code(line: LogLine, above: Iterable[LogLine]) -> bool:
    """Return whether a line is code in a traceback, and so not a message."""
    if FRAME.match(line.text):
        return True
    if not line.text.startswith(" " * CODE_INDENT):
        return False
    for pair in above:
        if pair.process != line.process:
            continue
        if FRAME.match(pair.text):
            return True
        if not pair.text.startswith(" " * CODE_INDENT):
            return False
    return False
