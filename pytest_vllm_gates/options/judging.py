"""The options of how the gates judge: samples, lanes to compare with, loads, features."""

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
    """How the gates judge what is served."""

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
    endurance: Endurance | None = option(
        "--endurance",
        kinds.ENDURANCE,
        "How many requests the endurance gate sends, or for how long: 2000, 30m, 2h.",
        metavar="N|DURATION",
        shown_default="the gate does not run",
        repeat="endurance",
    )
    lifecycle: bool = option(
        "--lifecycle",
        kinds.FLAG,
        "Boot a few times more: on used, broken and read-only caches, held by sleep and pause, and "
        "told to stop while it answers.",
        default=False,
        repeat="lifecycle",
    )
