"""Did clients that went away leave their slots free, and can that be told at all?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_vllm_gates.isolation.cancel import CancelResult


def why_undecided(departure: CancelResult, *, alone: bool) -> str | None:
    """Return why nothing can be said of a departure, None where something can.

    `alone`: nobody else uses the server.
    """
    if not departure.arrived:
        return (
            f"of {departure.clients} requests no more than {departure.during - departure.before} "
            "were seen in flight: they were over, or wait in a queue the server does not count"
        )
    if departure.freed and departure.ran_out:
        made = departure.tokens_before + departure.tokens_after
        return (
            f"{made} of {departure.asked_tokens} tokens "
            "were generated before anybody saw the requests gone: they may have ended by "
            "themselves; judge it where the machine is less busy or the context longer"
        )
    if alone or departure.after == 0:
        return None
    if departure.before:
        return (
            f"others use this server: {departure.before} requests were in flight before these; "
            "judge it when it is idle"
        )
    if 0 < departure.after < departure.clients:
        return (
            f"{departure.after} requests are in flight after {departure.clients} clients left, and "
            "they may be other people's; judge the server when it is idle"
        )
    return None


def fault(departure: CancelResult) -> str | None:
    """Return what is wrong with a departure that can be judged, as a sentence."""
    if departure.freed:
        return None
    return (
        f"{departure.clients} clients left, and {departure.after - departure.before} of their "
        f"requests still run {departure.seconds:.1f} s later: {departure.tokens_after} tokens were "
        "generated for nobody (num_requests_running in /metrics)"
    )
