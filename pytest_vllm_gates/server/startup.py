"""Reads from a server's log and metrics how it was started."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_vllm_gates.server import metrics
from pytest_vllm_gates.server.log import read_from, without_prefix
from pytest_vllm_gates.server.startup_check import Pattern, Startup, patterns

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.client.endpoint import Endpoint

LOG_BYTES = 4 * 2**20
"""The start is in the log's beginning; the rest may be days of requests."""


def observe(endpoint: Endpoint, log: Path | None) -> Startup:
    """Return the facts that a running server reports of its start; only metrics without a log."""
    return replace(read_log(log), cache=metrics.cache_config(endpoint))


def read_log(log: Path | None) -> Startup:
    """Return the facts that a log's file reports of a start; none without a log."""
    return read(beginning(log))


def beginning(log: Path | None) -> str:
    """Return the part of a log with the start; '' without a log."""
    return read_from(log)[:LOG_BYTES] if log and log.exists() else ""


def read(text: str) -> Startup:
    """Return the facts that a log reports of a start."""
    # Several ranks report the same: the first one counts.
    lines = "\n".join(dict.fromkeys(without_prefix(line) for line in text.splitlines()))
    startup_patterns = patterns()
    facts = {
        fact.name: captured for fact in startup_patterns.facts if (captured := value(fact, lines))
    }
    figures, phases_s = (
        {
            figure.name: float(captured.replace(",", ""))
            for figure in wanted
            if (captured := value(figure, lines))
        }
        for wanted in (startup_patterns.figures, startup_patterns.phases)
    )
    return Startup(facts, figures, phases_s=phases_s)


def value(pattern: Pattern, lines: str) -> str:
    """Return the match of a pattern in a log; empty without a match."""
    if pattern.every:
        values = [captured for regex in pattern.patterns for captured in re.findall(regex, lines)]
        return ", ".join(sorted(set(values)))
    matches = (re.search(regex, lines) for regex in pattern.patterns)
    return next((match[1] for match in matches if match), "")
