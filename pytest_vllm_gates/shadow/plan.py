"""The plan of one shadow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_vllm_gates.redaction.redactor import Redactor
from pytest_vllm_gates.shadow.copies import MirrorLimits
from pytest_vllm_gates.shadow.decide import Question

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.shadow.failing import FailingPairs
    from pytest_vllm_gates.shadow.settings import ShadowSettings


@dataclass(frozen=True)
class Shadow:
    """Everything that one shadow is configured with."""

    stable: str | None
    """URL without `/v1`; None with a trace whose recorded answers are compared."""
    canary: str
    settings: ShadowSettings
    project: Path
    stable_key: str | None = field(default=None, repr=False)
    """Used only with a trace: clients bring their own."""
    canary_key: str | None = field(default=None, repr=False)
    listen: tuple[str, int] = ("127.0.0.1", 0)
    control: tuple[str, int] = ("127.0.0.1", 0)
    share: float = 1.0
    seed: int | None = None
    family: str | None = None
    question: Question = field(default_factory=Question)
    limits: MirrorLimits = field(default_factory=MirrorLimits)
    webhook: str | None = None
    pairs: int | None = None
    minutes: float | None = None
    until_verdict: bool = False
    drain_s: float = 30.0
    trace: Sequence[Sent] | None = None
    failing: FailingPairs | None = None
    with_page: bool = False
    """Whether the second port shows the document live."""
    redactor: Redactor = field(default_factory=Redactor)
