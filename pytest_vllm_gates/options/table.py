"""Every option of the plugin, once: its names, value, help, default and effects.

The parser, the settings, `--help`, the table in docs/running.md, the commands that repeat a check
and the parsed record are made from the fields of `Options`.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.options import defaults, kinds
from pytest_vllm_gates.options.record import ALWAYS, option

if TYPE_CHECKING:
    from pytest_vllm_gates.load.types import Workers
    from pytest_vllm_gates.options.names import ClaimedName


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What was asked for. Paths are absolute, times in seconds."""

    rootdir: Path
    """The project's folder, which need not be pytest's rootdir."""
    verbose: bool
    invocation_dir: Path = dataclasses.field(default_factory=Path.cwd)
    """Where pytest was called: relative paths of its arguments start there."""
    test_root: Path | None = None
    """pytest's rootdir, where ids of tests start; None where it is the project's folder."""
    claimed: tuple[ClaimedName, ...] = ()
    """The short names that belong to other plugins in this run."""

    # The server, as a command that repeats a check names it.
    models: tuple[str, ...] = option(
        "--model",
        kinds.NAMES,
        "Boot the real server for these families and run the gates: a name, several with commas, "
        f"or '{defaults.ALL}'. May be repeated.",
        metavar="NAME[,NAME...]",
        default=(),
        wakes=True,
        from_incident=True,
        with_repro=False,
        repeat=ALWAYS,
    )
    lane: str | None = option(
        "--lane",
        kinds.TEXT,
        "The pinned bundle that serves.",
        metavar="NAME",
        shown_default="'cuda' where an NVIDIA GPU answers, else 'cpu'",
        from_incident=True,
        other_lane=False,
        repeat=ALWAYS,
    )
    base_url: str | None = option(
        "--base-url",
        kinds.URL,
        "Judge a server that already runs, such as http://host:8000/v1; nothing is booted. "
        f"The key is read from ${defaults.KEY_VARIABLE}.",
        metavar="URL",
        from_incident=True,
        excludes={"lane": defaults.ONE_SERVER, "against": defaults.NO_LANE},
        repeat=ALWAYS,
    )
    api_key_env: str = option(
        "--api-key-env",
        kinds.VARIABLE,
        "The environment variable that holds the key for --base-url.",
        metavar="NAME",
        default=defaults.KEY_VARIABLE,
        shown_default=defaults.KEY_VARIABLE,
        repeat=ALWAYS,
    )
    checkpoint: str | None = option(
        "--checkpoint",
        kinds.TEXT,
        "The weights: a checkpoint the family file names, a local folder, or a Hub id.",
        metavar="NAME",
        shown_default="the lane's, else the family's first",
        from_incident=True,
        repeat=ALWAYS,
    )
    overlay: bool = option(
        "--no-overlay",
        kinds.OFF,
        "Boot without the lane's overlay of documented repairs.",
        default=True,
        from_incident=True,
        repeat=ALWAYS,
    )
    without_repairs: tuple[str, ...] = option(
        "--without-repair",
        kinds.NAMES,
        "Boot without this repair of the lane's overlay, or these. May be repeated.",
        metavar="NAME[,NAME...]",
        from_incident=True,
        default=(),
        repeat=ALWAYS,
    )
    boot_timeout_s: float = option(
        "--boot-timeout",
        kinds.SECONDS,
        "Seconds a boot may take.",
        metavar="SECONDS",
        default=defaults.BOOT_TIMEOUT_S,
        shown_default=f"{defaults.BOOT_TIMEOUT_S:.0f}",
    )
    stall_timeout_s: float = option(
        "--stall-timeout",
        kinds.SECONDS,
        "Seconds a booting server's log may stay silent.",
        metavar="SECONDS",
        default=defaults.STALL_TIMEOUT_S,
        shown_default=f"{defaults.STALL_TIMEOUT_S:.0f}",
    )
    max_response_mib: int = option(
        "--max-response-mib",
        kinds.whole_number(1),
        "MiB an answer of the server may have, a stream twice as many.",
        metavar="N",
        default=defaults.MAX_RESPONSE_MIB,
        shown_default=f"{defaults.MAX_RESPONSE_MIB}",
        repeat=ALWAYS,
    )
    response_timeout_s: float = option(
        "--response-timeout",
        kinds.SECONDS,
        "Seconds a stream may take from its first byte to its end.",
        metavar="SECONDS",
        default=defaults.RESPONSE_TIMEOUT_S,
        shown_default=f"{defaults.RESPONSE_TIMEOUT_S:.0f}",
        repeat=ALWAYS,
    )
    keep_server_s: float = option(
        "--keep-server",
        kinds.duration(defaults.LEAST_IDLE_S),
        "Leave the server up for the next run that asks for the same with this option. It stops "
        f"after IDLE without requests, after {defaults.KEEP_SERVER} if IDLE is left out. Such a "
        "run never promotes. `vllm-gates servers` lists and stops them.",
        metavar="IDLE",
        default=0.0,
        const=defaults.KEEP_SERVER,
        promotes=False,
    )

    # How the gates judge.
    answer_tokens: int = option(
        "--answer-tokens",
        kinds.whole_number(1),
        "Tokens an answer may have, thinking included, in the conversation gates; models that "
        "think at length need more.",
        metavar="N",
        default=defaults.ANSWER_TOKENS,
        shown_default=f"{defaults.ANSWER_TOKENS}",
        repeat=ALWAYS,
    )
    samples: int = option(
        "--samples",
        kinds.whole_number(0),
        "Sampled answers of which the rate of valid tool calls is taken; 0 for none.",
        metavar="N",
        default=defaults.SAMPLES,
        shown_default=f"{defaults.SAMPLES}",
        repeat="tools",
    )
    against: str | None = option(
        "--against",
        kinds.TEXT,
        "Compare --lane with this lane: its gates run first and both reports are laid side by "
        "side, and throughput is measured boot by boot in place of a baseline. The same lane "
        "twice shows how small a difference this machine can detect.",
        metavar="NAME",
        with_repro=False,
        other_lane=False,
        repeat="throughput",
    )
    pairs: int | None = option(
        "--pairs",
        kinds.whole_number(2),
        "How many pairs of boots, or rounds of blocks by URL, --against may take.",
        metavar="N",
        shown_default="the lane's plan",
        needs=("against", "{pairs} counts the boots of {against} NAME: give both"),
        other_lane=False,
    )
    features: str | None = option(
        "--features",
        kinds.TEXT,
        "Boot again with these features: names of features.toml, NAME+NAME together, pairs, or "
        "deployed for those of the lane, which is then booted without them.",
        metavar="NAME,...",
        shown_default="none",
        other_lane=False,
        repeat="features",
    )
    soak_s: float = option(
        "--soak",
        kinds.duration(defaults.LEAST_SOAK_S),
        "How long the load gate keeps up its streams to look for drift: 90s, 30m, 2h; "
        f"at least {defaults.LEAST_SOAK_S:.0f}s.",
        metavar="DURATION",
        default=0.0,
        shown_default="not at all",
        repeat="load",
    )
    trace: Path | None = option(
        "--load-trace",
        kinds.PATH,
        "What the load gate replays in place of arrivals it makes up: a published trace (Azure LLM "
        "inference, BurstGPT, Mooncake) or a batch file of OpenAI's.",
        metavar="FILE",
        repeat="load",
    )
    ramp: bool = option(
        "--ramp",
        kinds.FLAG,
        "Raise the load gate's rate until the server no longer keeps its limits, and report the "
        "highest rate at which it does.",
        default=False,
        repeat="load",
    )
    load_workers: Workers = option(
        "--load-workers",
        kinds.WORKERS,
        "Drive the load gate's load with locust from N worker processes; N@HOST:PORT listens "
        "there and waits for N workers of other machines.",
        metavar="N[@HOST:PORT]",
        default_factory=kinds.no_workers,
        shown_default="one process without locust",
        repeat="load",
    )

    # What is recorded, reported and kept.
    update_golden: bool = option(
        "--update-golden",
        kinds.FLAG,
        "Record goldens for the tests that run. A recording run never promotes.",
        default=False,
        with_repro=False,
        other_lane=False,
        promotes=False,
    )
    update_baseline: bool = option(
        "--update-baseline",
        kinds.FLAG,
        "Record the throughput of this boot as a baseline of this machine, beside those recorded "
        "before. A recording run never promotes.",
        default=False,
        with_repro=False,
        other_lane=False,
        promotes=False,
    )
    store: str | None = option(
        "--gates-store",
        kinds.STORE,
        "Read goldens and baselines that the project does not have from a folder, an archive "
        "(.tar.gz, .zip) or the URL of one. It is never written to.",
        metavar="SOURCE",
        repeat=ALWAYS,
    )
    require_promotion: bool = option(
        "--require-promotion",
        kinds.FLAG,
        "Exit 0 only for PROMOTE: 1 for REJECT, 6 for HOLD. Implied by --against.",
        default=False,
        other_lane=False,
    )
    report_dir: Path | None = option(
        "--gates-report",
        kinds.FOLDER,
        "Write verdict.json and the server's log into this folder.",
        metavar="DIR",
        shown_default=f"none; with --against {defaults.REPORT}",
        other_lane=False,
    )
    history: Path | None = option(
        "--gates-history",
        kinds.PATH,
        "The SQLite file that remembers the verdicts of this project's runs.",
        metavar="PATH",
        shown_default=defaults.HISTORY,
        other_lane=False,
    )
    keep_history: bool = option(
        "--no-gates-history", kinds.OFF, "Remember nothing of this run.", default=True
    )
    incidents: bool = option(
        "--no-incidents", kinds.OFF, "Leave no incident behind where a test fails.", default=True
    )
    redact_prompts: str = option(
        "--redact-prompts",
        kinds.REDACTION,
        "What becomes of prompts and answers in reports, incidents and logs: keep, hash (equal "
        "texts stay comparable) or drop. Secrets never get there.",
        metavar="keep|hash|drop",
        default="keep",
        shown_default="keep",
    )

    # An incident that is sent again.
    repro: Path | None = option(
        "--repro",
        kinds.INCIDENT,
        "Send an incident again: its requests, judged by its own test. Takes family, checkpoint "
        "and lane from the incident where they are not given.",
        metavar="INCIDENT",
        wakes=True,
    )
    times: int = option(
        "--times",
        kinds.whole_number(1),
        "Replay the incident so many times and report how often it happens.",
        metavar="N",
        default=1,
        shown_default="1",
        needs=("repro", "{times} needs {repro}: pytest {repro} INCIDENT {times} N"),
    )
