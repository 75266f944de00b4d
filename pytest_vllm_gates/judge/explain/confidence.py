"""How sure an answer is.

In its favour count: its line is specific (it has captures or conditions, or is a whole sentence);
several of its patterns, or several processes, say it; the machine agrees. Against it: an error
that no signature knows comes before it; another failure is as specific in the same error block;
the exit status it depends on is not known; the machine disagrees. What the machine says counts
twice. More for it than against it is certain, as much is likely, and less is possible, as is
whatever only reports that something else failed.
"""

from __future__ import annotations

from pytest_vllm_gates.server.failure import Confidence


def judged(
    *,
    kind: str,
    agrees: bool,
    disagrees: bool,
    said_often: bool,
    specific: bool,
    error_before: bool,
    rivals: bool,
    status_unknown: bool,
) -> Confidence:
    """Return how sure an answer is of which this is known."""
    points = 2 * agrees + said_often + specific
    points -= 2 * disagrees + error_before + rivals + status_unknown
    if kind != "failure" or points < 0:
        return Confidence.POSSIBLE
    return Confidence.CERTAIN if points > 0 else Confidence.LIKELY
