"""How sure an answer is.

It begins as likely. In its favour count: the machine agrees; several of its patterns, or several
processes, say it; it is the only failure the log shows, and its line is specific (it has captures
or conditions). Against it: the machine disagrees; it is only a wrapper or a warning; an error that
no signature knows comes before it; another failure is as specific in the same error block; the
exit status it depends on is not known. What the machine says counts twice. More for it than
against it is certain, as much is likely, and less is possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.facts.explanation import Confidence

if TYPE_CHECKING:
    from collections.abc import Sequence


def judged(
    *,
    kind: str,
    agrees: bool,
    disagrees: bool,
    said_often: bool,
    alone: bool,
    specific: bool,
    error_before: bool,
    rivals: Sequence[str],
    status_unknown: bool,
) -> Confidence:
    """Return how sure an answer is of which this is known."""
    points = 2 * agrees + said_often + (alone and specific)
    points -= 2 * disagrees + error_before + bool(rivals) + status_unknown
    if kind != "failure" or points < 0:
        return Confidence.POSSIBLE
    return Confidence.CERTAIN if points > 0 else Confidence.LIKELY
