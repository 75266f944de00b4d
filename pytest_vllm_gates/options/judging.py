"""The options that change how the gates judge: samples, lanes to compare, loads, features."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pytest_vllm_gates.options import defaults, kinds
from pytest_vllm_gates.options.record import ALWAYS, option
from pytest_vllm_gates.options.serving import ServingOptions

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.load.types import Workers
    from pytest_vllm_gates.options.kinds import Endurance


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgingOptions(ServingOptions):
    """How the gates judge a server."""

    answer_tokens: int = option(
        "--answer-tokens",
        kinds.whole_number(1),
        "Most tokens of an answer in the conversation gates, thinking included. Raise it for "
        "models that think at length.",
        metavar="N",
        default=defaults.ANSWER_TOKENS,
        shown_default=f"{defaults.ANSWER_TOKENS}",
        repeat=ALWAYS,
    )
    samples: int = option(
        "--samples",
        kinds.whole_number(0),
        "Number of sampled answers to measure the rate of valid tool calls with; 0 for none.",
        metavar="N",
        default=defaults.SAMPLES,
        shown_default=f"{defaults.SAMPLES}",
        repeat="tools",
    )
    against: str | None = option(
        "--against",
        kinds.TEXT,
        "Compare --lane with this lane. The gates run on this lane first, the report shows both "
        "lanes side by side, and throughput is compared between the lanes' boots instead of with "
        "a baseline. Name the same lane twice to see the smallest difference this machine detects.",
        metavar="NAME",
        with_repro=False,
        other_lane=False,
        repeat="throughput",
    )
    pairs: int | None = option(
        "--pairs",
        kinds.whole_number(2),
        "Most pairs of boots that --against takes, or rounds of blocks for running servers.",
        metavar="N",
        shown_default="the lane's plan",
        needs=("against", "{pairs} limits the boots of {against} NAME: give both"),
        other_lane=False,
    )
    features: str | None = option(
        "--features",
        kinds.TEXT,
        "Boot again with these features: names from features.toml, NAME+NAME for several at once, "
        "'pairs', or 'deployed' to boot without the features that the lane has.",
        metavar="NAME,...",
        shown_default="none",
        other_lane=False,
        repeat="features",
    )
    soak_s: float = option(
        "--soak",
        kinds.duration(defaults.LEAST_SOAK_S),
        "Keep the load gate's streams running this long to find drift: 90s, 30m, 2h; "
        f"at least {defaults.LEAST_SOAK_S:.0f}s.",
        metavar="DURATION",
        default=0.0,
        shown_default="not at all",
        repeat="load",
    )
    trace: Path | None = option(
        "--load-trace",
        kinds.PATH,
        "Replay this file in the load gate instead of generated arrivals: a published trace (Azure "
        "LLM inference, BurstGPT, Mooncake) or an OpenAI batch file.",
        metavar="FILE",
        repeat="load",
    )
    ramp: bool = option(
        "--ramp",
        kinds.FLAG,
        "Raise the load gate's request rate until the server exceeds its limits, and report the "
        "highest rate within them.",
        default=False,
        repeat="load",
    )
    load_workers: Workers = option(
        "--load-workers",
        kinds.WORKERS,
        "Send the load gate's requests with locust from N worker processes. N@HOST:PORT listens "
        "at that address and waits for N workers on other machines.",
        metavar="N[@HOST:PORT]",
        default_factory=kinds.no_workers,
        shown_default="one process without locust",
        repeat="load",
    )
    endurance: Endurance | None = option(
        "--endurance",
        kinds.ENDURANCE,
        "Number of requests that the endurance gate sends, or its duration: 2000, 30m, 2h.",
        metavar="N|DURATION",
        shown_default="the gate does not run",
        repeat="endurance",
    )
    lifecycle: bool = option(
        "--lifecycle",
        kinds.FLAG,
        "Boot a few times more: on used, broken and read-only caches, with sleep and pause, and "
        "with a stop signal while the server answers.",
        default=False,
        repeat="lifecycle",
    )
