"""Compares the same request answered in two ways: whole and streamed, or in wider deltas."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_vllm_gates.conversations.checks.agreement import differences, divergence
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_vllm_gates.client.answer import Answer, Exchange

SEVERAL = {"delta": "several tokens"}
"""The trait of a stream whose deltas have several tokens, as on a busy server."""


@dataclass
class ComparedModes:
    """The comparison of pairs; `apart` has the token from which they were generated differently."""

    findings: list[Finding] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    apart: dict[str, int] = field(default_factory=dict)


def compare(
    pairs: Iterable[tuple[Exchange, Answer | None, Answer | None]], names: tuple[str, str]
) -> ComparedModes:
    """Compare answers pairwise; pairs with other tokens prove nothing and are only recorded."""
    compared = ComparedModes()
    for exchange, first, second in pairs:
        if first is None or second is None:
            continue
        if (at := divergence(first, second)) is not None:
            compared.apart[exchange.cell.name] = at
            continue
        case = exchange.case
        if second.is_wide:
            case = replace(case, traits={**case.traits, **SEVERAL})
        compared.cases.append(case)
        compared.findings += [Finding(case, fault) for fault in differences(first, second, names)]
    return compared
