"""The command line and `[tool.pytest.ini_options]`, parsed once into one frozen `Options`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates import option_list, option_values as values

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.load.types import Workers

ALL = "all"
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
    unasked = config.rootpath / option_list.REPORT if given("gates_against") else None
    return Options(
        models=models,
        checkpoint=given("gates_checkpoint") or None,
        lane=given("gates_lane") or None,
        base_url=values.url(base_url) if base_url else None,
        api_key_env=key_variable or option_list.KEY_VARIABLE,
        api_key_env_named=bool(key_variable),
        against=given("gates_against") or None,
        pairs=values.count("--pairs", given("gates_pairs"), 0, 2) or None,
        update_golden=bool(given("gates_update_golden")),
        update_baseline=bool(given("gates_update_baseline")),
        report_dir=report_dir or unasked,
        history=values.history(config, option_list.HISTORY, off=bool(given("gates_no_history"))),
        boot_timeout_s=values.seconds(
            "--boot-timeout", given("gates_boot_timeout"), option_list.BOOT_TIMEOUT_S
        ),
        stall_timeout_s=values.seconds(
            "--stall-timeout", given("gates_stall_timeout"), option_list.STALL_TIMEOUT_S
        ),
        overlay=not given("gates_no_overlay"),
        without_repairs=values.listed(given("gates_without_repair")),
        answer_tokens=values.count(
            "--answer-tokens", given("gates_answer_tokens"), option_list.ANSWER_TOKENS, 1
        ),
        samples=values.count("--samples", given("gates_samples"), option_list.SAMPLES, 0),
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
            "--against holds two lanes against each other, and --base-url is none: name the "
            'running server in a lane of its own: base_url = "..." in lanes/NAME.toml, then --lane'
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
