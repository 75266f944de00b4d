"""Builds an explanation from the reading of a log: the root, its confidence, the rest.

The confidence of an answer is a count. In its favour: its line is specific (it has captures or
conditions, or the length of a sentence); several of its patterns, or several processes, match; the
machine agrees. Against it: an unknown error comes before it; another failure is as specific in the
same error block; the exit status it depends on is not known; the machine disagrees. The machine
counts twice. More for than against is certain, equal is likely, less is possible. A signature that
only reports that something else failed is always possible. A signature is never certain if it only
warns while another error follows or the server serves, or if several failures print its lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.bounded import patterns
from pytest_vllm_gates.diagnosis import course, machine, model_fixes, ranking
from pytest_vllm_gates.diagnosis.conditions import Hit
from pytest_vllm_gates.diagnosis.marks import GAVE_UP
from pytest_vllm_gates.diagnosis.matcher import SignatureMatch
from pytest_vllm_gates.diagnosis.signature import PLACEHOLDER, placeholders
from pytest_vllm_gates.server.failure import QUOTED_CHARACTERS, Confidence, Diagnosis, Explanation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_vllm_gates.diagnosis.matcher import Error, Matcher
    from pytest_vllm_gates.diagnosis.signature import ShownFix, Signature
    from pytest_vllm_gates.preflight.types import Situation


# A process that got a request to end, or that ended well, did not fail.
ENDED_WELL = frozenset({0, -15, -2, 143, 130})


def confidence_of(
    *,
    kind: str,
    agrees: bool,
    disagrees: bool,
    said_often: bool,
    specific: bool,
    error_before: bool,
    rivals: bool,
    status_unknown: bool,
    indirect: bool = False,
) -> Confidence:
    """Return how sure an answer with these properties is."""
    points = 2 * agrees + said_often + specific
    points -= 2 * disagrees + error_before + rivals + status_unknown
    if kind != "failure" or points < 0:
        return Confidence.POSSIBLE
    return Confidence.CERTAIN if points > 0 and not indirect else Confidence.LIKELY


class ExplanationBuilder:
    """Describes what a matcher kept."""

    def __init__(self, matcher: Matcher, situation: Situation | None) -> None:
        self._matcher = matcher
        self._situation = situation
        self._seen = list(matcher.seen.values())
        self._errors = ranking.unexplained(matcher)
        self._error: Error | None = None

    def explanation(self) -> Explanation:
        """Return the whole explanation."""
        matcher = self._matcher
        matches = ranking.ranked(matcher, ranking.failures(matcher, self._seen))

        def past_failure(match: SignatureMatch) -> bool:
            return match.signature.kind == "failure" and ranking.before_ready(matcher, match)

        wrappers, warnings, past = (
            ranking.ranked(matcher, [match for match in self._seen if chosen(match)])
            for chosen in (_is_wrapper, _is_warning, past_failure)
        )
        self._error = self._first_error(matches, wrappers)
        refused = bool(matches) and matches[0].signature.phase == "client"
        if refused and self._died(wrappers):
            answer, refused = None, False
        elif self._outweighed(matches):
            answer = None
        else:
            answer = matches[0] if matches else self._by_status()
        if answer is None and wrappers and self._error is None:
            answer = max(wrappers, key=lambda match: (match.boot, -match.first.number))
        error = self._shown_error(answer)
        candidates = [match for match in matches if match is not answer]
        survived = bool(error and self._overcome(error))
        outcome, outcome_text = course.outcome_of(
            matcher.course, matcher.boot, matcher.lines, failed=self._failed(answer, wrappers)
        )
        return Explanation(
            answer=self._diagnosis(answer, candidates) if answer else None,
            error=error.excerpt if error else self._last_words(answer),
            error_line=error.number if error else None,
            error_text=error.text if error else "",
            survived=survived,
            well=survived and answer is None and not self._died(wrappers),
            refused=refused,
            outcome=outcome,
            outcome_text=outcome_text,
            candidates=tuple(self._diagnosis(match) for match in candidates),
            warnings=tuple(self._diagnosis(warning) for warning in (*warnings, *past)),
            wrappers=tuple(
                self._diagnosis(wrapper) for wrapper in wrappers if wrapper is not answer
            ),
            lines_read=matcher.lines,
        )

    def _overcome(self, error: Error) -> bool:
        return self._matcher.course.of(error.boot).overcame(error.number)

    def _first_error(
        self, matches: Sequence[SignatureMatch], wrappers: Sequence[SignatureMatch]
    ) -> Error | None:
        """Return the earliest error of the last boot with one that it did not overcome."""
        left = [error for error in self._errors if not self._overcome(error)]
        told = [*(match.boot for match in matches), *(match.boot for match in wrappers)]
        last = max([*told, *(error.boot for error in left)], default=0)
        of_last = [error for error in left if error.boot == last]
        if of_last or told:
            return of_last[0] if of_last else None
        return self._errors[0] if self._errors else None

    def _outweighed(self, matches: Sequence[SignatureMatch]) -> bool:
        """Return whether a real exception outranks a mere warning, or is in a later boot."""
        if not matches or self._error is None or GAVE_UP.match(self._error.text):
            return False
        first, error = matches[0], self._error
        return error.boot > first.boot or (
            error.boot == first.boot
            and ranking.yields(first)
            and first.signature.phase != "serving"
        )

    def _failed(self, answer: SignatureMatch | None, wrappers: Sequence[SignatureMatch]) -> bool:
        """Return whether the last boot failed, as far as the log shows."""
        last = self._matcher.boot
        of_last = bool(answer and answer.boot == last and not self._lived_on(answer))
        error = self._error is not None and self._error.boot == last
        overcome = self._error is not None and self._overcome(self._error)
        return (
            (of_last and answer is not None and answer.signature.phase != "client")
            or (error and not overcome)
            or any(wrapper.boot == last for wrapper in wrappers)
            or not self._ended_well()
        )

    def _lived_on(self, match: SignatureMatch) -> bool:
        return self._matcher.course.of(match.boot).overcame(match.last)

    def _died(self, wrappers: Sequence[SignatureMatch]) -> bool:
        """Return whether the log or the exit status shows that the server went down."""
        return bool(wrappers) or not self._ended_well()

    def _ended_well(self) -> bool:
        status = self._matcher.exit_status
        return status is None or status in ENDED_WELL

    def _by_status(self) -> SignatureMatch | None:
        """Return the signature of the exit status, if nothing else was found."""
        if self._error is not None:
            return None
        for signature in self._matcher.table.signatures:
            if not signature.patterns and self._matcher.exit_status in signature.when.exit_status:
                hit = Hit(0, f"exit status {self._matcher.exit_status}", "", "", {}, 0)
                return SignatureMatch(signature, self._matcher.boot, hit, 0)
        return None

    def _shown_error(self, answer: SignatureMatch | None) -> Error | None:
        """Return the unexplained error, if it comes before the answer."""
        error = self._error
        if error is None or answer is None:
            return error
        before = error.boot == answer.boot and error.number < answer.first.number
        return error if before else None

    def _last_words(self, answer: SignatureMatch | None) -> tuple[str, ...]:
        """Return the last lines of a process that failed without a known line."""
        if answer is not None or self._ended_well():
            return ()
        return self._matcher.last_lines() or ("the log is empty",)

    def _diagnosis(
        self, match: SignatureMatch, rivals: Iterable[SignatureMatch] | None = None
    ) -> Diagnosis:
        signature = match.signature
        agrees = machine.statements(signature.machine.supports, self._situation, match.captures)
        disagrees = machine.statements(
            signature.machine.contradicts, self._situation, match.captures
        )
        by_status = match.first.number == 0
        return Diagnosis(
            id=signature.id,
            title=signature.title,
            name=self._matcher.table.classes[signature.id],
            phase=signature.phase,
            kind=signature.kind,
            confidence=self._confidence(match, bool(agrees), bool(disagrees), rivals),
            cause=_cause(signature, match.captures),
            fixes=self._fixes(match),
            line=None if by_status else match.first.number,
            quoted=match.first.text[:QUOTED_CHARACTERS],
            times=match.times,
            processes=tuple(sorted(match.processes)),
            nodes=tuple(match.nodes),
            captures=tuple(match.captures.items()),
            supported_by=tuple(agrees),
            contradicted_by=tuple(disagrees),
            references=signature.references,
            infrastructure=signature.infrastructure,
        )

    def _confidence(
        self,
        match: SignatureMatch,
        agrees: bool,
        disagrees: bool,
        rivals: Iterable[SignatureMatch] | None,
    ) -> Confidence:
        if rivals is None:
            return Confidence.POSSIBLE
        rival = any(
            candidate.boot == match.boot
            and ranking.specificity(candidate) >= ranking.specificity(match)
            and ranking.together(self._matcher, match.first.number, candidate.first.number)
            for candidate in rivals
        )
        conditions = match.signature.when
        return confidence_of(
            kind=match.signature.kind,
            agrees=agrees,
            disagrees=disagrees,
            said_often=len(match.patterns) > 1 or len(match.processes) > 1,
            specific=bool(match.captures or conditions.conditions or _says_much(match)),
            error_before=self._shown_error(match) is not None,
            rivals=rival,
            status_unknown=bool(conditions.exit_status) and self._matcher.exit_status is None,
            indirect=self._indirect(match),
        )

    def _fixes(self, match: SignatureMatch) -> tuple[str, ...]:
        """Return the fixes that the log or the machine suggests, then the others, none done yet."""
        text, captures = match.signature.text, match.captures
        fixes = [shown.fix for shown in text.shown if self._is_shown(shown, match)]
        said = [
            filled(fix, captures)
            for fix in (*fixes, *text.fixes)
            if not placeholders(fix) - captures.keys()
        ]
        settings = self._matcher.settings
        if self._situation is not None:
            settings.add(self._situation.serve, self._situation.environment)
        left = settings.left_of(said)
        if self._situation is None or not self._situation.model.config:
            return left
        return model_fixes.fitted(left, self._situation.model)

    def _is_shown(self, shown: ShownFix, match: SignatureMatch) -> bool:
        if shown.seen and not any(
            patterns.checked(pattern).search(text)
            for pattern in shown.seen
            for text in (match.first.text, *match.texts)
        ):
            return False
        return not shown.machines or bool(
            self._matcher.device_rules.intersection(shown.machines)
            or machine.statements(shown.machines, self._situation, match.captures)
        )

    def _indirect(self, match: SignatureMatch) -> bool:
        """Return whether other lines, or the server itself, contradict a mere hint."""
        places = self._matcher.table.places
        weak = {places[pattern] for pattern in match.signature.weak}
        later = any(
            error.boot == match.boot and error.number > match.first.number
            for error in self._errors
            if not self._overcome(error)
        )
        return (
            match.patterns <= weak
            or (ranking.yields(match) and later)
            or (match.signature.phase != "client" and self._lived_on(match))
        )


def _says_much(match: SignatureMatch) -> bool:
    """Return whether a signature's line has the length of a sentence."""
    return len(match.first.text) > 40  # noqa: PLR2004


def _cause(signature: Signature, captures: Mapping[str, str]) -> str:
    text = signature.text
    if placeholders(text.cause) - captures.keys():
        return text.cause_plain
    return filled(text.cause, captures)


def filled(text: str, captures: Mapping[str, str]) -> str:
    """Return a text with its captures filled in; other braces stay."""
    return PLACEHOLDER.sub(lambda match: captures.get(match[1], match[0]), text)


def _is_wrapper(match: SignatureMatch) -> bool:
    return match.signature.kind == "wrapper"


def _is_warning(match: SignatureMatch) -> bool:
    return match.signature.kind == "warning"
