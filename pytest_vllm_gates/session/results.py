"""Turns pytest's reports into outcomes of gates, across xdist workers too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import OF_THE_DISK
from pytest_vllm_gates.outcomes import INFRASTRUCTURE, Outcome, TestResult, Undecided
from pytest_vllm_gates.session.items import evidence_key, gate_of, run_key
from pytest_vllm_gates.verdict.verdict import SEVERITY

if TYPE_CHECKING:
    from pytest_vllm_gates.server.types import Failure
    from pytest_vllm_gates.session.launch import Launch
    from pytest_vllm_gates.session.run import Subject

_judged_key: pytest.StashKey[dict[str, Any]] = pytest.StashKey()
sends_before_key: pytest.StashKey[int] = pytest.StashKey()
"""How many requests were sent to the server before a test."""
LETTERS = {
    Outcome.BLOCKED: "B",
    Outcome.MISSING: "M",
    Outcome.INCONCLUSIVE: "I",
    Outcome.WAIVED: "W",
    Outcome.KNOWN: "K",
    Outcome.NOT_APPLICABLE: "-",
}
REASON_CHARACTERS = 2000
SPEAKS_FOR_ITSELF = (
    AssertionError, Undecided, UserError, pytest.fail.Exception, pytest.skip.Exception,
)  # fmt: skip
# Errors from an answer whose form no check expected.
MISREADINGS = (TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)
# Errors of openai and httpx; by name, because both are slow to import.
CLIENT_ERRORS = {"OpenAIError", "HTTPError"}
DYING_S = 3.0  # vLLM answers with a 500 and goes down after that


def subject_of(item: pytest.Item) -> Subject | None:
    """Return the family for which a test is run, or None for a test of no gate."""
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("subject") if callspec else None


def shorten(call: pytest.CallInfo[None]) -> None:
    """Keep only the last frame of an undecided test, because a long traceback is slow to format."""
    if call.excinfo and isinstance(call.excinfo.value, Undecided):
        call.excinfo.traceback = call.excinfo.traceback[-1:]


def judge(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Set the outcome of a gate test's report, and the whole result of its last report."""
    subject = subject_of(item)
    if subject is None:
        return
    outcome, reason, breaks = _outcome(call, report)
    cause = _cause(call)
    if outcome is Outcome.FAIL and (lost := _lost(item, call)):
        outcome, reason, cause = Outcome.BLOCKED, lost, INFRASTRUCTURE
    if death := _death(item, call):
        reason = f"{death.brief}\n{reason}"
        report.sections.append(("The server died", death.explain()))
        if death.of_infrastructure:
            outcome, breaks, cause = Outcome.BLOCKED, True, INFRASTRUCTURE
    if outcome is Outcome.FAIL:
        outcome, reason, breaks = _waived(item, subject, report, reason)
    judged = item.stash.setdefault(
        _judged_key,
        {
            "outcome": Outcome.NOT_APPLICABLE,
            "reason": "",
            "breaks": False,
            "cause": "",
            "duration_s": 0.0,
        },
    )
    judged["duration_s"] += call.duration
    if outcome and SEVERITY.index(outcome) <= SEVERITY.index(judged["outcome"]):
        judged |= {"outcome": outcome, "reason": reason, "breaks": breaks, "cause": cause}
        properties = [pair for pair in item.user_properties if pair[0] not in {"outcome", "cause"}]
        item.user_properties[:] = report.user_properties[:] = [
            *properties,
            ("outcome", str(outcome)),
            *([("cause", cause)] if cause else []),
        ]
    if outcome in LETTERS:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"{outcome}: {reason}")
        report.gate_outcome = str(outcome)  # type: ignore[attr-defined]
    if call.when == "teardown":
        evidence = item.stash.get(evidence_key, None)
        report.gate_result = {  # type: ignore[attr-defined]
            **judged,
            "outcome": str(judged["outcome"]),
            "family": subject.family.name,
            "gate": gate_of(item),
            "test": _name(item),
            "requests": _requests(item, subject),
            # Through JSON, because it comes from an xdist worker in that form.
            "evidence": json.loads(json.dumps(dict(evidence or {}), default=str)),
        }


def _requests(item: pytest.Item, subject: Subject) -> int:
    """Return how many requests a test sent to its server."""
    tape = item.config.stash[run_key].tapes.get(subject.family.name)
    if tape is None:
        return 0
    return tape.count - item.stash.get(sends_before_key, 0) + tape.ahead[item.nodeid]


def reason_of(item: pytest.Item) -> str:
    """Return the reason for a test's outcome so far."""
    judged = item.stash.get(_judged_key, None)
    return str(judged["reason"]) if judged else ""


def result_of(report: pytest.TestReport) -> TestResult | None:
    """Return the result in a test's last report."""
    carried: dict[str, Any] | None = getattr(report, "gate_result", None)
    if carried is None:
        return None
    return TestResult(**{**carried, "outcome": Outcome(carried["outcome"])})


def status_of(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Return category, letter and word with which pytest shows an undecided test."""
    name = getattr(report, "gate_outcome", None)
    if name is None:
        return None
    return name.lower(), LETTERS[Outcome(name)], name


def _name(item: pytest.Item) -> str:
    return item.nodeid.rpartition("::")[2]


def _waived(
    item: pytest.Item, subject: Subject, report: pytest.TestReport, failure: str
) -> tuple[Outcome, str, bool]:
    """Return the outcome of a failure with a waiver; an expired waiver only adds a note."""
    waivers = item.config.stash[run_key].waivers
    outcome, reason = waivers.apply(subject.family.name, gate_of(item), _name(item), failure)
    if outcome is Outcome.FAIL and reason != failure:
        report.sections.append(("Its waiver expired", reason.splitlines()[0]))
    return outcome, reason, outcome is Outcome.FAIL


def _death(item: pytest.Item, call: pytest.CallInfo[None]) -> Failure | None:
    """Return how the server died of a failed test: this test reports it, not the next."""
    launch: Launch | None = getattr(item, "funcargs", {}).get("launch")
    if launch is None or call.when != "call" or call.excinfo is None:
        return None
    error = call.excinfo.value
    kinds = {kind.__name__ for kind in type(error).__mro__}
    unanswered = kinds & CLIENT_ERRORS and getattr(error, "status_code", 500) >= 500  # noqa: PLR2004
    return launch.death(DYING_S if unanswered else 0.0)


def _lost(item: pytest.Item, call: pytest.CallInfo[None]) -> str:
    """Return why a running server is no longer reached; '' for every other error."""
    launch: Launch | None = getattr(item, "funcargs", {}).get("launch")
    error = call.excinfo.value if call.excinfo else None
    if error is None or launch is None or launch.owned or launch.boot.endpoint is None:
        return ""
    if not {kind.__name__ for kind in type(error).__mro__} & CLIENT_ERRORS:
        return ""
    from pytest_vllm_gates.client import ready  # noqa: PLC0415 - heavy

    url = launch.boot.endpoint.base_url
    why = ready.lost(error, url)
    return f"the server at {url} is no longer reached: {why}; next: {why.hint}" if why else ""


def _outcome(
    call: pytest.CallInfo[None], report: pytest.TestReport
) -> tuple[Outcome | None, str, bool]:
    """Return the outcome of one phase, None for a set-up or tear-down without an error."""
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, Undecided):
        return error.outcome, _reason(error), error.breaks
    if isinstance(error, UserError):
        return Outcome.BLOCKED, _reason(error), True
    if isinstance(error, OSError) and error.errno in OF_THE_DISK:
        return Outcome.BLOCKED, f"this machine's disk, and not the server: {error}", True
    if isinstance(error, pytest.skip.Exception) or hasattr(report, "wasxfail"):
        return Outcome.INCONCLUSIVE, f"not judged: {_reason(error)}", False
    if error is not None:
        return Outcome.FAIL, _reason(error), True
    return (Outcome.PASS if call.when == "call" else None), "", False


def _cause(call: pytest.CallInfo[None]) -> str:
    """Return the known cause of an error that ended a phase."""
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, OSError) and error.errno in OF_THE_DISK:
        return INFRASTRUCTURE
    return error.cause if isinstance(error, Undecided) else ""


def _reason(error: BaseException | None) -> str:
    if error is None:
        return "expected to fail, and passed"
    message = str(error).strip()
    if not isinstance(error, SPEAKS_FOR_ITSELF):
        message = f"{type(error).__name__}: {message}"
        if isinstance(error, MISREADINGS):
            message = f"the server's answer could not be judged: {message}"
        # The clients' "Connection error." alone is not enough for a person to act on.
        if error.__cause__ is not None:
            message += f" ({type(error.__cause__).__name__}: {error.__cause__})"
    return message[:REASON_CHARACTERS] or type(error).__name__
