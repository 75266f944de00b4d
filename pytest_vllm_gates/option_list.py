"""Every option by name, with what `--help` says of it, and its ini twin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import option_values as values

if TYPE_CHECKING:
    import pytest

BOOT_TIMEOUT_S = 1800.0
STALL_TIMEOUT_S = 300.0
ANSWER_TOKENS = 1024
SAMPLES = 20
REPORT = "gates-report"
"""Where a run with --against writes its report when nothing else is asked for."""
HISTORY = ".vllm-gates/history.sqlite"
KEEP_SERVER = "15m"
KEY_VARIABLE = "OPENAI_API_KEY"


def declare(parser: pytest.Parser) -> None:
    """Declare every option and, under `gates_<name>`, its ini twin."""
    group = parser.getgroup("vllm-gates", "vLLM gates (inert without --model)")

    def option(name: str, text: str, *, ini: str, **how: Any) -> None:
        group.addoption(f"--{name}", dest=ini, default=None, help=text, **how)
        flag = how.get("action") in ("store_true", "store_false")
        kind = "bool" if flag else "args" if how.get("action") == "append" else "string"
        parser.addini(ini, f"{text} (as --{name})", type=kind, default=None)  # type: ignore[arg-type]

    option(
        "model",
        "Boot the real server for these families and run the gates: a name, several with commas, "
        "or 'all'. May be repeated.",
        ini="gates_model",
        action="append",
        metavar="NAME[,NAME...]",
    )
    option(
        "checkpoint",
        "The weights: a checkpoint the family file names, a local folder, or a Hub id. "
        "Default: the lane's, else the family's first.",
        ini="gates_checkpoint",
        metavar="NAME",
    )
    option(
        "lane",
        "The pinned bundle that serves. Default: 'cuda' where an NVIDIA GPU answers, else 'cpu'.",
        ini="gates_lane",
        metavar="NAME",
    )
    option(
        "against",
        "Hold --lane against this one: its gates run first and both are laid side by side, and "
        "throughput is measured boot by boot in place of a baseline. The same lane twice says how "
        "small a difference this machine can show.",
        ini="gates_against",
        metavar="NAME",
    )
    option(
        "pairs",
        "How many pairs of boots --against may take at most. Default: the lane's plan.",
        ini="gates_pairs",
        metavar="N",
    )
    option(
        "base-url",
        "Judge a server that already runs, such as http://host:8000/v1; nothing is booted. "
        f"The key is read from ${KEY_VARIABLE}.",
        ini="gates_base_url",
        metavar="URL",
    )
    option(
        "api-key-env",
        "The environment variable that holds the key for --base-url.",
        ini="gates_api_key_env",
        metavar="NAME",
    )
    option(
        "update-golden",
        "Record goldens for the tests that run. A recording run never promotes.",
        ini="gates_update_golden",
        action="store_true",
    )
    option(
        "update-baseline",
        "Record the throughput of this boot as a baseline of this machine, beside those recorded "
        "before. A recording run never promotes.",
        ini="gates_update_baseline",
        action="store_true",
    )
    option(
        "gates-report",
        "Write verdict.json and the server's log into this folder. "
        f"Default: none; with --against {REPORT}.",
        ini="gates_report",
        metavar="DIR",
    )
    option(
        "gates-history",
        f"The SQLite file that remembers the verdicts of this project's runs. Default: {HISTORY}.",
        ini="gates_history",
        metavar="PATH",
    )
    option(
        "no-gates-history",
        "Remember nothing of this run.",
        ini="gates_no_history",
        action="store_true",
    )
    option(
        "boot-timeout",
        f"Seconds a boot may take. Default: {BOOT_TIMEOUT_S:.0f}.",
        ini="gates_boot_timeout",
        metavar="SECONDS",
    )
    option(
        "stall-timeout",
        f"Seconds a booting server's log may stay silent. Default: {STALL_TIMEOUT_S:.0f}.",
        ini="gates_stall_timeout",
        metavar="SECONDS",
    )
    option(
        "answer-tokens",
        "Tokens an answer may have, thinking included, in the conversation gates. "
        f"Default: {ANSWER_TOKENS}; models that think at length need more.",
        ini="gates_answer_tokens",
        metavar="N",
    )
    option(
        "samples",
        "Sampled answers of which the rate of valid tool calls is taken; 0 for none. "
        f"Default: {SAMPLES}.",
        ini="gates_samples",
        metavar="N",
    )
    option(
        "soak",
        "How long the load gate keeps up its streams to look for drift: 90s, 30m, 2h; "
        f"at least {values.LEAST_SOAK_S:.0f}s. Default: not at all.",
        ini="gates_soak",
        metavar="DURATION",
    )
    option(
        "load-workers",
        "Drive the load gate's load with locust from so many worker processes; N@HOST:PORT listens "
        "there and waits for N workers of other machines. Default: one process without locust.",
        ini="gates_load_workers",
        metavar="N[@HOST:PORT]",
    )
    option(
        "load-trace",
        "What the load gate replays in place of arrivals it makes up: a published trace (Azure LLM "
        "inference, BurstGPT, Mooncake) or a batch file of OpenAI's.",
        ini="gates_load_trace",
        metavar="FILE",
    )
    option(
        "ramp",
        "Raise the load gate's rate until the server no longer keeps its limits, and tell up to "
        "which rate it does.",
        ini="gates_ramp",
        action="store_true",
    )
    option(
        "keep-server",
        "Leave the server up for the next run that asks for the same with this option, until it "
        f"was idle for so long; default: {KEEP_SERVER}. Such a run never promotes. "
        "`vllm-gates servers` lists and stops them.",
        ini="gates_keep_server",
        nargs="?",
        const=KEEP_SERVER,
        metavar="IDLE",
    )
    option(
        "no-overlay",
        "Boot without the lane's overlay of documented repairs.",
        ini="gates_no_overlay",
        action="store_true",
    )
    option(
        "without-repair",
        "Boot without this repair of the lane's overlay, or these. May be repeated.",
        ini="gates_without_repair",
        action="append",
        metavar="NAME[,NAME...]",
    )
    option(
        "repro",
        "Send an incident again: its requests, judged by its own test. Takes family, checkpoint "
        "and lane from the bundle where they are not given.",
        ini="gates_repro",
        metavar="BUNDLE",
    )
    option(
        "times",
        "Replay the incident so many times and tell how often it happens. Default: 1.",
        ini="gates_times",
        metavar="N",
    )
    option(
        "no-incidents",
        "Leave no incident behind where a test fails.",
        ini="gates_no_incidents",
        action="store_true",
    )
    option(
        "redact-prompts",
        "What becomes of prompts and answers in reports, bundles and logs: keep, hash (equal texts "
        "stay comparable) or drop. Default: keep. Secrets never get there.",
        ini="gates_redact_prompts",
        metavar="keep|hash|drop",
    )
    option(
        "require-promotion",
        "Exit 0 only for PROMOTE: 1 for REJECT, 6 for HOLD. Implied by --against.",
        ini="gates_require_promotion",
        action="store_true",
    )
