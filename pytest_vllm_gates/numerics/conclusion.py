"""Says in words what the comparison with a trusted run means for the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_vllm_gates.numerics import checks_paired, checks_scale
from pytest_vllm_gates.numerics.checks_paired import Equivalence
from pytest_vllm_gates.numerics.checks_resemblance import resemblance
from pytest_vllm_gates.outcomes import Inconclusive, NotApplicable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.numerics.checks_paired import Comparison
    from pytest_vllm_gates.numerics.forced_types import ForcedRun


class Trusted(NamedTuple):
    """Where a trusted run comes from, and how to replace it."""

    family: str
    lane: str
    ships: bool
    """Whether it comes with the package, and not from this project."""
    command: str
    """Records a trusted run here."""


def incomparable(trusted: ForcedRun, now: ForcedRun) -> str | None:
    """Return why two runs cannot be compared, None if they can."""
    if "unknown" not in (trusted.weights, now.weights) and trusted.weights != now.weights:
        return "the trusted run is of other weights"
    if flags := "; ".join(checks_paired.other_flags(trusted, now)):
        return f"the flags declare another computation ({flags})"
    return None


def conclude(
    trusted: ForcedRun, now: ForcedRun, comparisons: Sequence[Comparison], source: Trusted
) -> None:
    """End with the results of the comparisons in words.

    Raises `AssertionError` if a phase is different. If one is undecided, raises `Inconclusive`, or
    `NotApplicable` for a trusted run that ships and is from another machine: nobody here said that
    its kernels are those to expect.
    """
    _refuse_different(trusted, now, comparisons)
    unknown = [each for each in comparisons if each.answer is Equivalence.UNKNOWN]
    if not unknown:
        return
    apart = "; ".join(f"{each.phase}: {each.nats:.4f} nats apart" for each in unknown)
    if source.ships and trusted.machine != now.machine:
        raise NotApplicable(
            f"the trusted run that ships is from another machine ({trusted.machine}), and the "
            f"kernels of this one ({now.machine}) round differently ({apart}); record a trusted "
            f"run here: {source.command}"
        )
    if checks_paired.another_machine(trusted, now):
        measured = checks_scale.between_machines(trusted, now)
        raise Inconclusive(
            f"{apart}: one bundle, on {trusted.machine} and on {now.machine}\n"
            f"if both machines are healthy, this is their difference: add to "
            f"lanes/{source.lane}.toml\n{checks_scale.as_toml(source.family, measured)}"
        )
    raise Inconclusive(
        f"{apart}: vLLM {trusted.build} on {trusted.machine} and {now.build} on {now.machine} "
        "may use other kernels that are equally correct; compare on one machine with --against"
    )


def _refuse_different(
    trusted: ForcedRun, now: ForcedRun, comparisons: Sequence[Comparison]
) -> None:
    different = [each for each in comparisons if each.answer is Equivalence.DIFFERENT]
    said = [
        f"{each.phase}: {each.nats:.4f} nats apart over {each.tokens} tokens of {each.texts} "
        f"texts, {each.harmless_nats:.4f} by batching alone (odds of equal servers {each.odds:.0e})"
        for each in different
    ]
    if different:
        raise AssertionError(
            "the server does not compute the same as the trusted run\n"
            + "\n".join(said)
            + "\nlikely cause: "
            + resemblance(trusted, now, comparisons)
            + f"\ntrusted: vLLM {trusted.build} on {trusted.machine}; now: vLLM {now.build} on "
            f"{now.machine}"
        )
