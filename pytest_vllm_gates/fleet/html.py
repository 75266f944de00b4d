"""A fleet's verdict as a page of HTML, one file without scripts or network access."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.fleet import grid
from pytest_vllm_gates.report import html as report_html

if TYPE_CHECKING:
    from pytest_vllm_gates.fleet.merged import FleetVerdict
    from pytest_vllm_gates.fleet.shards import FleetPlan

NAME = "fleet.html"
TEMPLATE = "fleet.html"
HERE = Path(__file__).parent
STYLE = Path(report_html.__file__).with_name("style.css")


def page(plan: FleetPlan, fleet: FleetVerdict, again: str, base: Path) -> str:
    """Return the page; links to the shards' reports start from the folder `base`."""
    import jinja2  # noqa: PLC0415 - slow to import

    style = STYLE.read_text(encoding="utf-8")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template(TEMPLATE).render(
        style=style,
        # Only this exact text is allowed, and no text from a shard's report.
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        promotion=str(fleet.verdict.promotion),
        reasons=fleet.verdict.reasons,
        again=again,
        notes=grid.notes(fleet),
        grid=grid.cells(plan, fleet, base),
        shards=len(plan.shards),
        not_planned=grid.NOT_PLANNED,
        plan=plan.digest,
        suite=plan.suite,
    )
