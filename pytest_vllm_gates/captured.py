"""The fixture of the gate for requests that were captured elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.facts.outcome import NotApplicable

if TYPE_CHECKING:
    from pytest_vllm_gates.facts.expectation import Expectation
    from pytest_vllm_gates.facts.incident import Sent
    from pytest_vllm_gates.facts.launch import Endpoint
    from pytest_vllm_gates.replays import Attempt
    from pytest_vllm_gates.run import Run


@dataclass(frozen=True)
class Captured:
    """What a bundle asks, as it was answered now, and what is expected of that."""

    answered: tuple[Sent, ...]
    expectations: tuple[Expectation, ...]


@pytest.fixture
def captured_bundle(_incident: Attempt | None) -> Attempt:
    """The bundle a test of this gate is run for; it is not applicable without one."""
    if _incident is None:
        raise NotApplicable("judges requests of bundles that were captured elsewhere (--repro)")
    return _incident


@pytest.fixture
def captured(captured_bundle: Attempt, server: Endpoint, _run: Run) -> Captured:
    """Send the requests of a bundle again."""
    from pytest_vllm_gates.drive.resend import readdressed, resend  # noqa: PLC0415
    from pytest_vllm_gates.facts import expectation  # noqa: PLC0415

    bundle = captured_bundle.bundle
    sends = [bundle.sent(one) for one in bundle.incident.sends]
    asked = [replace(one, body=readdressed(one.body, server.model)) for one in sends]
    said = bundle.text(expectation.FILE)
    expected = said.splitlines() if said else expectation.DEFAULT
    answered = resend(server, asked, _run.options.stall_timeout_s)
    return Captured(tuple(answered), expectation.parse_all(expected))
