"""The values that options have where they are not given, and the least that they may have."""

from __future__ import annotations

ALL = "all"
REPORT = "gates-report"
"""Where a run with --against writes its report when nothing else is asked for."""
HISTORY = ".vllm-gates/history.sqlite"
KEEP_SERVER = "15m"
KEY_VARIABLE = "OPENAI_API_KEY"
BOOT_TIMEOUT_S = 1800.0
STALL_TIMEOUT_S = 300.0
MAX_RESPONSE_MIB = 8
RESPONSE_TIMEOUT_S = 1800.0
ANSWER_TOKENS = 1024
SAMPLES = 20
LEAST_SOAK_S = 30.0
LEAST_IDLE_S = 1.0

ONE_SERVER = "{base_url} judges a server that already runs and {lane} boots one: give only one"
NO_LANE = (
    "{against} holds two lanes against each other, and {base_url} is none: name the running server "
    'in a lane of its own: base_url = "..." in lanes/NAME.toml, then {lane}'
)
