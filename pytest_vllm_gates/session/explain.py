"""Explains the failures of this run's servers, by the shipped and the project's signatures."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pytest_vllm_gates.bounded.patterns import SlowPatternError
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.preflight.types import Situation
    from pytest_vllm_gates.server.failure import Explanation
    from pytest_vllm_gates.server.launch import Explain


def explainer(project: Path, situation: Situation | None) -> Explain:
    """Return a function that explains a log of a server that was booted in this situation.

    If a project's pattern takes too long, the log is explained by the shipped ones.
    """

    def explain(path: Path, status: int | None) -> Explanation | None:
        from pytest_vllm_gates.diagnosis import signature  # noqa: PLC0415
        from pytest_vllm_gates.diagnosis.explain import explain as explain_blocks  # noqa: PLC0415
        from pytest_vllm_gates.server import log  # noqa: PLC0415 - only where something failed

        try:
            classes = signature.load_all(project)
        except UserError:
            # A project's own file is checked before anything boots, and may have changed since.
            classes = signature.load_all()
        for known in (classes, signature.load_all()):
            with contextlib.suppress(SlowPatternError):
                return explain_blocks(log.blocks(path), known, status, situation)
        return None

    return explain
