"""Every option of the plugin, once: its names, value, help, default and effects.

The parser, the settings, `--help`, the table in docs/running.md, the commands that repeat a check
and the parsed record are made from the fields of `Options`, in their order: the server's
(`serving.py`), how the gates judge (`judging.py`), and these.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pytest_vllm_gates.options import defaults, kinds
from pytest_vllm_gates.options.judging import JudgingOptions
from pytest_vllm_gates.options.record import ALWAYS, option

if TYPE_CHECKING:
    from pathlib import Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(JudgingOptions):
    """What was asked for. Paths are absolute, times in seconds."""

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
        "(.tar.gz, .zip), the URL of one, or a store such as s3://bucket/gates. It is never "
        "written to.",
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
