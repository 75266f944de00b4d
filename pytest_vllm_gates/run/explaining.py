"""Names the failures of this run's servers, by the shipped signatures and the project's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.facts.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.drive.launch import Explain
    from pytest_vllm_gates.facts.explanation import Explanation
    from pytest_vllm_gates.facts.preflight import Situation


def explainer(project: Path, situation: Situation | None) -> Explain:
    """Return what explains a log of a server that was booted in this situation."""

    def explain(path: Path, status: int | None) -> Explanation | None:
        from pytest_vllm_gates.drive import log  # noqa: PLC0415 - only where something failed
        from pytest_vllm_gates.facts import signature  # noqa: PLC0415
        from pytest_vllm_gates.judge import explain as judge  # noqa: PLC0415

        try:
            classes = signature.load_all(project)
        except UserError:
            # A project's own file is checked before anything boots, and may have changed since.
            classes = signature.load_all()
        return judge.explain(log.blocks(path), classes, status, situation)

    return explain
