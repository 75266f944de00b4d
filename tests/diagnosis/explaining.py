"""Small classes of signatures, and logs to explain by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.diagnosis import explain
from pytest_vllm_gates.diagnosis.signature import SignatureClass

if TYPE_CHECKING:
    from pytest_vllm_gates.preflight.types import Situation
    from pytest_vllm_gates.server.failure import Explanation

STAMP = "11-20 10:00:00"
READY = "Application startup complete."
MEMORY = "MemoryShortError: short of memory"
HEALTHY = (
    f"(APIServer pid=1) INFO {STAMP} [api_server.py:1] vLLM API server version 0.32.0",
    f"(APIServer pid=1) INFO {STAMP} [utils.py:1] non-default args: {{'model': 'x'}}",
    f"(APIServer pid=1) WARNING {STAMP} [system_utils.py:1] limit errors like `OSError: [Errno 24]",
    f"(EngineCore pid=2) INFO {STAMP} [core.py:1] Initializing a V1 LLM engine (v0.32.0)",
    "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00]",
    f"(APIServer pid=1) INFO:     {READY}",
    '(APIServer pid=1) INFO:     127.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    f"(APIServer pid=1) INFO {STAMP} [loggers.py:1] Avg prompt throughput: 1.0 tokens/s",
)


def signature(name: str, *patterns: str, **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "title": f"it is {name}",
        "phase": "load",
        "patterns": patterns,
        "text": {"cause": f"Because of {name}.", "fixes": [f"mend {name}"]},
        **more,
    }


def classes(*signatures: dict[str, Any]) -> tuple[SignatureClass, ...]:
    table = {"name": "class", "title": "A class", "signatures": signatures}
    return (SignatureClass.model_validate(table, strict=False),)


MEMORY_SHORT = signature("MEMORY", "short of memory")
DISK_FULL = signature("DISK", r"disk (?P<disk>\w+) is full")
WRAPPED = signature("WRAPPER", "the engine did not start", kind="wrapper")
WARNED = signature("WARNED", "falling back to slow", kind="warning")
REFUSED = signature("REFUSED", "prompt is too long", phase="client")
COMMON = classes(MEMORY_SHORT, DISK_FULL, WRAPPED, WARNED, REFUSED)


def explanation_of(
    *lines: str,
    by: tuple[SignatureClass, ...] = COMMON,
    exit_status: int | None = None,
    situation: Situation | None = None,
) -> Explanation:
    """Return the explanation of a log with these lines."""
    text = "".join(f"{line}\n" for line in lines).encode()
    return explain.explain([text], by, exit_status, situation)
