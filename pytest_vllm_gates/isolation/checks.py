"""Checks that requests of disconnected clients free their slots, where that can be judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_vllm_gates.isolation.cancel import CancelResult


def why_undecided(result: CancelResult, *, alone: bool) -> str | None:
    """Return why a result cannot be judged, None if it can.

    `alone`: nobody else uses the server.
    """
    if not result.arrived:
        return (
            f"of {result.clients} requests no more than {result.during - result.before} "
            "were seen in flight: they were over, or wait in a queue the server does not count"
        )
    if result.freed and result.ran_out:
        generated = result.tokens_before + result.tokens_after
        return (
            f"{generated} of {result.asked_tokens} tokens "
            "were generated before anybody saw the requests gone: they may have ended by "
            "themselves; judge it where the machine is less busy or the context longer"
        )
    return None if alone or result.after == 0 else _why_others(result)


def _why_others(result: CancelResult) -> str | None:
    """Return what on a shared server speaks against judging requests that are still in flight."""
    if result.others and not result.freed:
        return (
            f"others use this server, and {result.after} requests that are in flight "
            f"{result.seconds:.0f} s after the clients left may be theirs; judge it when it is idle"
        )
    if result.before:
        return (
            f"others use this server: {result.before} requests were in flight before these; "
            "judge it when it is idle"
        )
    if 0 < result.after < result.clients:
        return (
            f"{result.after} requests are in flight after {result.clients} clients left, and "
            "they may be other people's; judge the server when it is idle"
        )
    return None


def fault(result: CancelResult) -> str | None:
    """Return the fault of a result that can be judged, as a sentence."""
    if result.freed:
        return None
    return (
        f"{result.clients} clients left, and {result.after - result.before} of their "
        f"requests still run {result.seconds:.1f} s later: {result.tokens_after} tokens were "
        "generated for nobody (num_requests_running in /metrics)"
    )
