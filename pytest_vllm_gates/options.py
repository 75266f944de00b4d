"""The command line and `[tool.pytest.ini_options]`, parsed once into one frozen `Options`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates import option_values as values

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.facts.timing import Workers

ALL = "all"
BOOT_TIMEOUT_S = 1800.0
STALL_TIMEOUT_S = 300.0
ANSWER_TOKENS = 1024
SAMPLES = 20
REPORT = "gates-report"
"""Where a run with --against writes its report when nothing else is asked for."""
HISTORY = ".vllm-gates/history.sqlite"
KEEP_SERVER = "15m"
KEY_VARIABLE = "OPENAI_API_KEY"
# What means nothing without --model, and so would be ignored, with where it is kept.
NEED_MODEL = {
    f"--{name}": f"gates_{name.replace('gates-', '').replace('-', '_')}"
    for name in (
        "checkpoint", "lane", "base-url", "api-key-env", "update-golden", "gates-report",
        "boot-timeout", "stall-timeout", "no-overlay", "without-repair",
        "require-promotion", "answer-tokens", "samples", "soak", "against", "update-baseline",
        "load-workers", "load-trace", "ramp", "pairs", "no-incidents", "gates-history",
        "no-gates-history", "redact-prompts", "keep-server",
    )
}  # fmt: skip

# What a replay takes from its incident unless the command line says otherwise.
TOLD_BY_INCIDENT = ("gates_model", "gates_checkpoint", "gates_lane", "gates_base_url")
NOT_WITH_REPRO = {
    "--model": "gates_model",
    "--against": "gates_against",
    "--update-golden": "gates_update_golden",
    "--update-baseline": "gates_update_baseline",
}


@dataclass(frozen=True)
class Options:
    """What was asked for. Paths are absolute, times in seconds."""

    models: tuple[str, ...]
    checkpoint: str | None
    lane: str | None
    base_url: str | None
    api_key_env: str
    api_key_env_named: bool
    against: str | None
    pairs: int | None
    update_golden: bool
    update_baseline: bool
    report_dir: Path | None
    history: Path | None
    """The file that remembers the verdicts; None where none is kept."""
    boot_timeout_s: float
    stall_timeout_s: float
    overlay: bool
    without_repairs: tuple[str, ...]
    answer_tokens: int
    samples: int
    soak_s: float
    load_workers: Workers
    trace: Path | None
    ramp: bool
    keep_server_s: float
    """How long a server that is left up may be idle; 0 where none is to be left up."""
    require_promotion: bool
    repro: Path | None
    """The bundle of the incident to replay."""
    times: int
    """How often."""
    incidents: bool
    """Whether a failed test leaves an incident behind."""
    redact_prompts: str
    rootdir: Path
    verbose: bool


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


def parse(config: pytest.Config) -> Options | None:
    """Return the options, or None without `--model`; raises `pytest.UsageError` for a mistake."""
    repro = config.getoption("gates_repro")

    def given(name: str) -> Any:
        value = config.getoption(name)
        # A project's defaults are not what an incident was seen with.
        if value is not None or (repro and name in TOLD_BY_INCIDENT):
            return value
        return config.getini(name)

    models = values.listed(given("gates_model"))
    if repro:
        _refuse_with_repro(config)
    elif not models:
        if config.getoption("gates_model"):
            raise pytest.UsageError("--model names no family: pytest --model NAME")
        _refuse_without_model(config)
        return None
    base_url = given("gates_base_url")
    _refuse_contradictions(config, given)
    key_variable = given("gates_api_key_env")
    if key_variable and key_variable not in os.environ:
        raise pytest.UsageError(
            f"--api-key-env names {key_variable!r}, which is not set: export {key_variable}=..."
        )
    report = given("gates_report")
    report_dir = Path(config.invocation_params.dir, report).resolve() if report else None
    if report_dir and report_dir.exists() and not report_dir.is_dir():
        raise pytest.UsageError(f"--gates-report {report!r} is a file: name a folder")
    return Options(
        models=models,
        checkpoint=given("gates_checkpoint") or None,
        lane=given("gates_lane") or None,
        base_url=values.url(base_url) if base_url else None,
        api_key_env=key_variable or KEY_VARIABLE,
        api_key_env_named=bool(key_variable),
        against=given("gates_against") or None,
        pairs=values.count("--pairs", given("gates_pairs"), 0, 2) or None,
        update_golden=bool(given("gates_update_golden")),
        update_baseline=bool(given("gates_update_baseline")),
        report_dir=report_dir or (config.rootpath / REPORT if given("gates_against") else None),
        history=values.history(config, HISTORY, off=bool(given("gates_no_history"))),
        boot_timeout_s=values.seconds(
            "--boot-timeout", given("gates_boot_timeout"), BOOT_TIMEOUT_S
        ),
        stall_timeout_s=values.seconds(
            "--stall-timeout", given("gates_stall_timeout"), STALL_TIMEOUT_S
        ),
        overlay=not given("gates_no_overlay"),
        without_repairs=values.listed(given("gates_without_repair")),
        answer_tokens=values.count(
            "--answer-tokens", given("gates_answer_tokens"), ANSWER_TOKENS, 1
        ),
        samples=values.count("--samples", given("gates_samples"), SAMPLES, 0),
        soak_s=values.duration("--soak", given("gates_soak"), values.LEAST_SOAK_S),
        keep_server_s=0.0
        if base_url or given("gates_against") or given("gates_update_baseline")
        else values.duration("--keep-server", given("gates_keep_server"), values.LEAST_IDLE_S),
        load_workers=values.workers("--load-workers", given("gates_load_workers")),
        require_promotion=bool(given("gates_require_promotion") or given("gates_against")),
        redact_prompts=values.redact_prompts(given("gates_redact_prompts")),
        trace=values.path(config, "gates_load_trace"),
        ramp=bool(given("gates_ramp")),
        repro=Path(config.invocation_params.dir, repro).absolute() if repro else None,
        times=values.count("--times", given("gates_times"), 1, 1),
        incidents=not (repro or given("gates_no_incidents")),
        rootdir=config.rootpath,
        verbose=config.get_verbosity() > 0,
    )


def _refuse_with_repro(config: pytest.Config) -> None:
    """Refuse options that would have an incident judged otherwise than it was."""
    for flag, name in NOT_WITH_REPRO.items():
        if config.getoption(name):
            raise pytest.UsageError(
                f"--repro sends one incident again, as it was, and {flag} asks for something else: "
                "give only one"
            )


def _refuse_contradictions(config: pytest.Config, given: Callable[[str], Any]) -> None:
    """Refuse options of which one makes another impossible."""
    if given("gates_base_url") and given("gates_lane"):
        raise pytest.UsageError(
            "--base-url judges a server that already runs and --lane boots one: give only one"
        )
    if given("gates_base_url") and given("gates_against"):
        raise pytest.UsageError(
            "--against boots both lanes again and again, and --base-url boots nothing: "
            "give only one"
        )
    if config.getoption("gates_pairs") and not given("gates_against"):
        raise pytest.UsageError("--pairs counts the boots of --against NAME: give both")


def _refuse_without_model(config: pytest.Config) -> None:
    """Refuse options that only make sense with `--model`, rather than ignore them silently."""
    for flag, name in NEED_MODEL.items():
        if config.getoption(name) is not None:
            raise pytest.UsageError(f"{flag} needs --model: pytest --model NAME {flag} ...")
    if config.getoption("gates_times") is not None:
        raise pytest.UsageError("--times needs --repro: pytest --repro BUNDLE --times N")
