"""Every option of the plugin: its names, value, help, default and effects.

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
    """All options of a run. Paths are absolute, times in seconds."""

    # Options for what is recorded, reported and kept.
    update_golden: bool = option(
        "--update-golden",
        kinds.FLAG,
        "Record goldens for the selected tests. A recording run never promotes.",
        default=False,
        with_repro=False,
        other_lane=False,
        promotes=False,
    )
    update_baseline: bool = option(
        "--update-baseline",
        kinds.FLAG,
        "Record the throughput of this boot as a baseline of this machine, in addition to earlier "
        "ones. A recording run never promotes.",
        default=False,
        with_repro=False,
        other_lane=False,
        promotes=False,
    )
    store: str | None = option(
        "--gates-store",
        kinds.STORE,
        "Read goldens and baselines that the project does not have from here: a folder, an archive "
        "(.tar.gz, .zip), an archive's URL, or a store such as s3://bucket/gates. The gates never "
        "write to it.",
        metavar="SOURCE",
        repeat=ALWAYS,
    )
    require_promotion: bool = option(
        "--require-promotion",
        kinds.FLAG,
        "Exit 0 only for PROMOTE, 1 for REJECT and 6 for HOLD. Implied by --against.",
        default=False,
        other_lane=False,
    )
    report_dir: Path | None = option(
        "--gates-report",
        kinds.FOLDER,
        "Write the report (verdict.json, the server's log) into this folder.",
        metavar="DIR",
        shown_default=f"none; with --against {defaults.REPORT}",
        other_lane=False,
    )
    history: Path | None = option(
        "--gates-history",
        kinds.PATH,
        "The SQLite file that stores the verdicts of this project's runs.",
        metavar="PATH",
        shown_default=defaults.HISTORY,
        other_lane=False,
    )
    keep_history: bool = option(
        "--no-gates-history", kinds.OFF, "Do not store this run's verdict.", default=True
    )
    incidents: bool = option(
        "--no-incidents", kinds.OFF, "Do not write incidents for failed tests.", default=True
    )
    redact_prompts: str = option(
        "--redact-prompts",
        kinds.REDACTION,
        "How to treat prompts and answers in reports, incidents and logs: keep, hash (equal texts "
        "stay comparable) or drop. Secrets are never written there.",
        metavar="keep|hash|drop",
        default="keep",
        shown_default="keep",
    )

    # Replays of an incident.
    repro: Path | None = option(
        "--repro",
        kinds.INCIDENT,
        "Send an incident's requests again and judge them with the incident's test. Family, "
        "checkpoint and lane are read from the incident if they are not given.",
        metavar="INCIDENT",
        wakes=True,
    )
    times: int = option(
        "--times",
        kinds.whole_number(1),
        "Replay the incident N times and report how often it happens.",
        metavar="N",
        default=1,
        shown_default="1",
        needs=("repro", "{times} needs {repro}: pytest {repro} INCIDENT {times} N"),
    )
