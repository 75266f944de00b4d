"""The default values of options, and the least values they accept."""

from __future__ import annotations

ALL = "all"
REPORT = "gates-report"
"""The default folder for the report of a run with --against."""
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

ONE_SERVER = "{base_url} judges a running server and {lane} boots one: give only one of them"
NO_LANE = (
    "{against} compares two lanes, and {base_url} does not name a lane: make a lane for the "
    'running server, with base_url = "..." in lanes/NAME.toml, then pass it with {lane}'
)
