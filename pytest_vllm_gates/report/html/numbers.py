"""The figures that a family's gates measured on each lane, for passed and failed gates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.report.html import gate_figures, load_figures
from pytest_vllm_gates.report.html.panels import sides

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pytest_vllm_gates.report.html.drawing import TextLimits
    from pytest_vllm_gates.report.html.panels import Panel
    from pytest_vllm_gates.report.html.sections import Lanes


def numbers(
    lanes: Lanes, family: Mapping[str, Any], limits: TextLimits
) -> tuple[list[tuple[str, str]], list[Panel]]:
    """Return each lane's name and the style of its marks, and the panels of a family's figures."""
    several = sides(lanes, family)
    panels = (
        *load_figures.panels(several, limits),
        gate_figures.ladder(several, limits),
        gate_figures.distances(several, limits),
        gate_figures.boot(several),
    )
    return [(side.name, side.style) for side in several], [panel for panel in panels if panel]
