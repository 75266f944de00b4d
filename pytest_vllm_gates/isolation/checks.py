"""Checks that requests of disconnected clients free their slots, if that can be judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_vllm_gates.isolation.cancel import CancelResult


def why_undecided(result: CancelResult, *, alone: bool) -> str | None:
    """Return why a result cannot be judged; None if it can.

    `alone`: no other clients use the server.
    """
    if not result.arrived:
        return (
            f"only {result.during - result.before} of {result.clients} requests "
            "were seen in flight: they had ended, or wait in a queue the server does not count"
        )
    if result.freed and result.ran_out:
        generated = result.tokens_before + result.tokens_after
        return (
            f"{generated} of {result.asked_tokens} tokens "
            "were generated before the requests were seen to end: they may have ended by "
            "themselves; repeat this on a less busy machine or with a longer context"
        )
    return None if alone or result.after == 0 else _why_others(result)


def _why_others(result: CancelResult) -> str | None:
    """Return why, on a shared server, requests that are still in flight cannot be judged."""
    if result.others and not result.freed:
        return (
            f"other clients use this server, and the {result.after} requests in flight "
            f"{result.seconds:.0f} s after the clients left may be theirs; repeat this when the "
            "server is idle"
        )
    if result.before:
        return (
            f"other clients use this server: {result.before} requests were in flight before these; "
            "repeat this when the server is idle"
        )
    if 0 < result.after < result.clients:
        return (
            f"{result.after} requests are in flight after {result.clients} clients left, but "
            "they may come from other clients; repeat this when the server is idle"
        )
    return None


def fault(result: CancelResult) -> str | None:
    """Return the fault of a result that can be judged, as a sentence."""
    if result.freed:
        return None
    return (
        f"{result.clients} clients left, but {result.after - result.before} of their "
        f"requests still run {result.seconds:.1f} s later: {result.tokens_after} tokens were "
        "generated without a client (num_requests_running in /metrics)"
    )
