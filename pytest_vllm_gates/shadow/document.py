"""The state of a shadow as one document in the format of `shadow.schema.json`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import __version__
from pytest_vllm_gates.shadow import sequential
from pytest_vllm_gates.shadow.decide import HOLD, REJECT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_vllm_gates.shadow.copies import MirrorCounts
    from pytest_vllm_gates.shadow.decide import KindState, Question, ShadowDecision
    from pytest_vllm_gates.shadow.figures import FigureState, QuantileBounds
    from pytest_vllm_gates.shadow.settings import ShadowSettings
    from pytest_vllm_gates.shadow.tally import Tally

FORMAT = "pytest-vllm-gates/shadow"
VERSION = 1
SCHEMA = Path(__file__).with_name("shadow.schema.json")
EXIT_STATUS: Mapping[str, int] = {"PROMOTE": 0, "REJECT": 1, "HOLD": 6}


def shadow_document(  # noqa: PLR0917
    decision: ShadowDecision,
    tally: Tally,
    counts: MirrorCounts,
    question: Question,
    settings: ShadowSettings,
    run: Mapping[str, str],
) -> dict[str, Any]:
    """Return the document; `run` has the two URLs and the times."""
    # A REJECT is final; counting goes on.
    pairs = tally.pairs if decision.promotion == REJECT else decision.pairs
    return {
        "format": FORMAT,
        "version": VERSION,
        "tool": {"name": "pytest-vllm-gates", "version": __version__},
        "created": run["created"],
        "started": run["started"],
        "stable": run["stable"],
        "canary": run["canary"],
        "promotion": decision.promotion,
        "watching": decision.promotion == HOLD,
        "exit_status": EXIT_STATUS[decision.promotion],
        "reasons": list(decision.reasons),
        "pairs": pairs,
        "more_pairs": decision.more_pairs,
        "question": {
            "alpha": question.alpha,
            "margin": question.margin,
            "least_pairs": question.least_pairs,
        },
        "kinds": [_kind(state, pairs, question.alpha, settings) for state in decision.kinds],
        "figures": [_figure(state) for state in decision.figures],
        "greedy": {
            "pairs": tally.greedy,
            "same": tally.greedy_same,
            "part_at_median": _middle(tally.parts),
            "part_at_token_median": _middle(tally.token_parts),
            "part_at_token_least": tally.token_parts[0] if tally.token_parts else None,
        },
        "traffic": {
            "passed": counts.passed,
            "failed": counts.failed,
            "mirrored": counts.mirrored,
            "not_mirrored": dict(counts.not_mirrored),
            "not_judged": dict(tally.left_out),
        },
    }


def summary(document: Mapping[str, Any]) -> str:
    """Return a document in lines for people."""
    word = "KEEP WATCHING" if document["watching"] else document["promotion"]
    traffic = document["traffic"]
    lines = [f"{word} after {document['pairs']} pairs"]
    lines += [f"  {reason}" for reason in document["reasons"]]
    if document["promotion"] == HOLD:
        more = document["more_pairs"]
        lines.append(
            "  with figures like these no number of pairs would promote it"
            if more is None
            else f"  about {more} more pairs like these are needed for PROMOTE"
        )
    for kind in document["kinds"]:
        if kind["canary_only"] and document["promotion"] != REJECT:
            until = kind["until_reject"]
            more = "" if until is None else f"; {until} more pairs like these would reject it"
            lines.append(
                f"  {kind['name']}: canary alone {kind['canary_only']}, stable alone "
                f"{kind['stable_only']}, both {kind['both']}{more}"
            )
    lines += _greedy(document["greedy"])
    not_mirrored = sum(traffic["not_mirrored"].values())
    lines.append(
        f"  {traffic['passed']} requests passed on, {traffic['mirrored']} copied, "
        f"{not_mirrored} not, {sum(traffic['not_judged'].values())} pairs not judged"
    )
    return "\n".join(lines)


def _greedy(greedy: Mapping[str, Any]) -> Iterator[str]:
    if not greedy["pairs"]:
        return
    line = f"  greedy: {greedy['same']} of {greedy['pairs']} answers are the same text"
    if greedy["part_at_token_median"] is not None:
        line += (
            f"; others part after {greedy['part_at_token_least']} tokens at the earliest, "
            f"{greedy['part_at_token_median']} in the median"
        )
    elif greedy["part_at_median"] is not None:
        line += f"; others part after {greedy['part_at_median']} characters in the median"
    yield line


def _middle(places: Sequence[int]) -> int | None:
    return places[len(places) // 2] if places else None


def _kind(state: KindState, pairs: int, alpha: float, settings: ShadowSettings) -> dict[str, Any]:
    kind, count = settings.kinds[state.name], state.count
    return {
        "name": state.name,
        "says": kind.says,
        "rate": kind.rate,
        "canary_only": state.count.canary_only,
        "stable_only": state.count.stable_only,
        "both": state.count.both,
        "test": state.test,
        "odds": _finite(state.odds),
        "odds_needed": _finite(state.needed),
        "rejected": state.rejected,
        "difference_below": state.upper,
        "stable_rate": _rate(count.both + count.stable_only, pairs, alpha),
        "canary_rate": _rate(count.both + count.canary_only, pairs, alpha),
        "until_reject": state.until_reject,
        "until_promote": state.until_promote,
        "last": state.count.last,
    }


def _figure(state: FigureState) -> dict[str, Any]:
    return {
        "name": state.name,
        "says": state.settings.says,
        "quantile": state.quantile,
        "pairs": state.count,
        "ratio_allowed": state.settings.worse,
        "stable": _bounds(state.stable),
        "canary": _bounds(state.canary),
        "rejected": state.rejected,
        "fine": state.fine,
    }


def _bounds(bounds: QuantileBounds) -> dict[str, float | None]:
    return {"lower": bounds.lower, "value": bounds.value, "upper": bounds.upper}


def _rate(failed: int, pairs: int, alpha: float) -> dict[str, float]:
    """Return a side's rate of failures with its bounds."""
    failed = min(failed, pairs)
    lower, upper = sequential.rate_bounds(failed, pairs, alpha)
    return {"lower": lower, "value": failed / max(1, pairs), "upper": upper}


def _finite(value: float) -> float:
    """Return a number that JSON has, with three digits."""
    return float(f"{min(value, 1e300):.3g}") if not math.isnan(value) else 0.0
