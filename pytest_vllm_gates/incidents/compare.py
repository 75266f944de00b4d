"""Decides whether a replay reproduces an incident, and compares the answers then and now."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.incidents import decide_captured
from pytest_vllm_gates.incidents.types import CAPTURED, ReplayOutcome
from pytest_vllm_gates.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.incidents.types import Incident
    from pytest_vllm_gates.outcomes import Finding

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:[.,]\d+)*%?")
PATH = re.compile(r"(?:/[\w.@+-]+){2,}/?")
TOKEN = re.compile(r"\b(?:[a-z]+-)?[0-9a-f]{8,}\b")
QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
DIFF_LINE = re.compile(r"\s*[+-] ")
# Fields that differ in every answer.
PASSING = (
    "id", "created", "model", "system_fingerprint", "kv_transfer_params", "request_id",
    "created_at", "completed_at", "signature",
)  # fmt: skip
READINGS = ("/metrics", "/load")
"""Paths whose answers report the current load of a server."""
PROBABILITIES = ("logprob", "token_logprobs", "cumulative_logprob")
ADDED_STATUS = re.compile(r" \(status \d+\)$")
"""The suffix that `expectation.unmet` adds to a sentence about an error."""
NO_STATUSES: dict[str, int | None] = {}
PROBABILITY_DIGITS = 1
"""Kernels that sum in another order change a log probability by a few hundredths."""


@dataclass(frozen=True)
class ComparedRequest:
    """One request's two answers."""

    name: str
    same: bool
    diff: str
    """The difference between the text then and the text now."""
    first_s: tuple[float | None, float | None]
    """Seconds to the first piece, then and now."""
    seconds: tuple[float | None, float | None]
    """Seconds to the last piece, then and now."""
    recorded: bool = True
    """Whether the answer then was recorded; if not, `diff` is the answer now."""

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return dataclasses.asdict(self)


def decide(
    incident: Incident,
    outcome: Outcome,
    reason: str,
    findings: Sequence[Finding],
    *,
    other_weights: bool = False,
    statuses: Mapping[str, int | None] = NO_STATUSES,
    error_expected: bool = False,
) -> tuple[ReplayOutcome, str]:
    """Return whether a replay reproduces the incident, and why.

    `findings` are all findings of its test, known defects included. Numbers, paths and ids may
    differ; with `other_weights` the model's output may differ, too. `statuses` are the statuses of
    the answers now, by the names of the sends: an error that is neither expected nor recorded
    shows nothing about a captured request.
    """
    errors = {} if error_expected else decide_captured.new_errors(incident, statuses)
    before = {(finding.case, _plain(finding.says, other_weights)) for finding in incident.findings}
    now = {
        (finding.case.name, _plain(finding.says, other_weights))
        for finding in findings
        if finding.case.name not in errors
    }
    if again := before & now:
        return ReplayOutcome.REPRODUCED, f"{len(again)} of {len(before)} findings came again"
    if incident.gate == CAPTURED and (
        decided := decide_captured.decide(incident, outcome, reason, findings, errors)
    ):
        return decided
    if outcome is Outcome.PASS or outcome is Outcome.NOT_APPLICABLE:
        return ReplayOutcome.NOT_REPRODUCED, reason or "its test passes"
    kernels = [_kernel(message, other_weights) for message in (incident.says, reason)]
    fails = outcome in (Outcome.FAIL, Outcome.WAIVED)
    if fails and not before and kernels[0] == kernels[1]:
        return ReplayOutcome.REPRODUCED, "its test fails as it did"
    if outcome is Outcome.KNOWN:
        return ReplayOutcome.NOT_REPRODUCED, "only known defects were found"
    return ReplayOutcome.DIFFERENT, f"its test is {outcome}, with another message"


def pairs(before: Iterable[Sent], now: Sequence[Sent]) -> list[tuple[Sent, Sent]]:
    """Return the sends of an incident that were sent again, each with its new send."""
    unmatched = [(exchange, _request_key(exchange)) for exchange in now]
    matches = []
    for sent in before:
        key = _request_key(sent)
        for place, (exchange, other_key) in enumerate(unmatched):
            if other_key == key:
                matches.append((sent, exchange))
                del unmatched[place]
                break
    return matches


def compare(before: Sent, now: Sent, *, models: tuple[str, str] = ("", "")) -> ComparedRequest:
    """Compare two answers to one request.

    `models` are the server's model names then and now: every boot has another name.
    """
    before_text, now_text = (
        _unnamed(_answer_text(sent), model) if models[0] != models[1] else _answer_text(sent)
        for sent, model in zip((before, now), models, strict=True)
    )
    recorded = before.status is not None or bool(before.error)
    before_text = before_text if recorded else ""
    diff = difflib.unified_diff(
        before_text.splitlines(), now_text.splitlines(), "then", "now", n=1, lineterm=""
    )
    return ComparedRequest(
        before.name,
        before_text == now_text,
        "\n".join(diff),
        (_first_s(before), _first_s(now)),
        (_last_s(before), _last_s(now)),
        recorded,
    )


def _unnamed(text: str, model: str) -> str:
    """Replace the model's name in a text, where it is a word by itself, with MODEL."""
    name = rf"(?<![\w.-]){re.escape(model)}(?![\w-])"
    return re.sub(name, "MODEL", text) if model else text


def _plain(text: str, other_weights: bool) -> str:
    """Return a text without parts that differ from run to run."""
    text = ADDED_STATUS.sub("", text)
    text = TOKEN.sub("*", PATH.sub("*", text))
    if other_weights:
        text = QUOTED.sub("*", text)
    return " ".join(NUMBER.sub("#", text).split())


def _kernel(reason: str, other_weights: bool) -> list[str]:
    """Return the lines that identify a failure: the first line, and the lines of a diff."""
    lines = reason.strip().splitlines() or [""]
    telling_lines = lines[:1] if other_weights else [lines[0], *filter(DIFF_LINE.match, lines[1:])]
    return [_plain(line, other_weights) for line in telling_lines]


def _request_key(sent: Sent) -> tuple[str, str, str]:
    try:
        body = json.loads(sent.body)
    except (ValueError, RecursionError):
        body = sent.body.decode("utf-8", "replace")
    if isinstance(body, dict):
        body = {key: value for key, value in body.items() if key not in ("model", "cache_salt")}
    return sent.method, sent.path, json.dumps(body, sort_keys=True)


def _answer_text(sent: Sent) -> str:
    """Return an answer as lines: the joined fields of a completion, anything else unchanged."""
    text = sent.answer.decode("utf-8", "replace")
    head = f"status: {sent.status}" + (f"\nerror: {sent.error}" if sent.error else "")
    if sent.path.partition("?")[0] in READINGS:
        return head
    events = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    try:
        if events:
            done = "[DONE]" in events
            chunks = [json.loads(event) for event in events if event != "[DONE]"]
            lines = assembled(chunks) + ([] if done else ["the stream has no end"])
        else:
            lines = json.dumps(_lasting(json.loads(text)), indent=1, ensure_ascii=False).split("\n")
    except (ValueError, RecursionError):
        lines = text.splitlines()
    return "\n".join([head, *lines])


def assembled(chunks: Sequence[Any]) -> list[str]:
    """Return the fields of a stream: texts are joined; for other values the last one counts."""
    fields: dict[str, str] = {}

    def join(place: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                if key not in PASSING and key != "logprobs":
                    join(f"{place}.{key}" if place else key, inner)
        elif isinstance(value, list):
            for number, inner in enumerate(value):
                at = inner.get("index", number) if isinstance(inner, dict) else number
                join(f"{place}[{at}]", inner)
        elif isinstance(value, str) and not place.endswith(("object", "role", "type")):
            fields[place] = fields.get(place, "") + value
        elif value is not None:
            fields[place] = str(value)

    for chunk in chunks:
        join("", chunk)
    # The spread of tokens over chunks is not part of the answer.
    return [f"{key}: {value}" for key, value in fields.items() if "token_ids" not in key]


def _lasting(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _lasting(inner, name) for name, inner in value.items() if name not in PASSING}
    if isinstance(value, list):
        return [_lasting(inner, key) for inner in value]
    if isinstance(value, float) and key in PROBABILITIES:
        return round(value, PROBABILITY_DIGITS)
    return value


def _first_s(sent: Sent) -> float | None:
    return round(sent.pieces[0][0], 3) if sent.pieces else None


def _last_s(sent: Sent) -> float | None:
    return round(sent.pieces[-1][0], 3) if sent.pieces else None
