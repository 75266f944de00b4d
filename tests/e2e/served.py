"""Real servers for tests: a miniature on the CPU lane, booted by the project's own machinery."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.checkpoints import resolve as checkpoints_resolve
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.server.launch import LaunchPlan, Server
from pytest_vllm_gates.server.patience import BootLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.family_parts import CheckpointEntry
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.client.endpoint import Endpoint

ROOT = Path(__file__).parents[2]
LANE = "cpu"
LIMITS = BootLimits(boot_s=600.0, stall_s=300.0)


class Served:
    """A family's miniature, served for real until `stop`."""

    def __init__(
        self,
        miniature: str,
        folder: Path,
        progress: Callable[[str], None],
        changes: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`changes`: additional keys of the lane's `env` and `serve`."""
        self.family, self.checkpoint = subject_of(miniature)
        lane: Lane = lanes.load(LANE, ROOT)
        update = {key: getattr(lane, key) | dict(value) for key, value in (changes or {}).items()}
        lane = lane.model_copy(update=update)
        ready = environment.prepare(lane, cache=files.default_cache(), progress=progress)
        self._server = Server(
            LaunchPlan(
                family=self.family,
                lane=lane,
                checkpoint=self.checkpoint,
                python=ready.python,
                overlay=lane.overlay_path,
                folder=folder,
                limits=LIMITS,
            ),
            progress,
        )
        self.boot = self._server.boot

    @property
    def endpoint(self) -> Endpoint:
        """Its URL."""
        assert self.boot.endpoint, self.boot.failure and self.boot.failure.explain()
        return self.boot.endpoint

    def alive(self) -> bool:
        """Whether it still runs."""
        return self._server.alive()

    def stop(self) -> None:
        """End it."""
        self._server.stop()


def serves(miniature: str) -> bool:
    """Return whether a family names this miniature."""
    return any(checkpoint.miniature == miniature for _, checkpoint in _checkpoints())


def subject_of(miniature: str) -> tuple[Family, Checkpoint]:
    """Return the family that serves a miniature, and the miniature as its checkpoint."""
    matches = [pair for pair in _checkpoints() if pair[1].miniature == miniature]
    assert matches, f"no family file names the miniature {miniature!r}"
    family, checkpoint = matches[0]
    return family, checkpoints_resolve.resolve(family, checkpoint.name)


def _checkpoints() -> Iterator[tuple[Family, CheckpointEntry]]:
    for family in families.load_all(ROOT):
        yield from ((family, checkpoint) for checkpoint in family.checkpoints)
