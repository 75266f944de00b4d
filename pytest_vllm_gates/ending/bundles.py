"""What the lanes of a run serve with: asked from the session, before anything boots or after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.environment import environment as environments
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.lanes import describe as descriptions

if TYPE_CHECKING:
    from pytest_vllm_gates.environment.environment import Environment
    from pytest_vllm_gates.facts.bundle_diff import BundleDescription
    from pytest_vllm_gates.session.run import Run


def description(run: Run) -> BundleDescription:
    """Return what a run's lane serves its families with; nothing is made, booted or fetched."""
    return descriptions.of(
        run.lane,
        _environment(run),
        run.machine,
        [(one.family, one.checkpoint) for one in run.subjects],
        overlay=run.overlay,
        without=run.options.without_repairs,
    )


def _environment(run: Run) -> Environment:
    """Return the run's environment, or what is known of it; a broken one tells nothing."""
    if run.environment is not None:
        return run.environment
    try:
        return environments.at_hand(run.lane, cache=environments.default_cache())
    except UserError:
        return environments.Environment(None)
