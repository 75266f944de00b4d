"""The incidents that a run sends again: the one of --repro, or those that are kept as tests."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.catalog.conversation import Conversation
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents import replay_target
from pytest_vllm_gates.incidents.read import Bundle, read
from pytest_vllm_gates.incidents.types import EXPECTED, PROMPT_FILES
from pytest_vllm_gates.report import incidents as report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.options import Options

KEPT = "golden/incidents"
LABEL = re.compile(r"[^\w.-]+")


@dataclass(frozen=True)
class Attempt:
    """One time that an incident is sent again; tests are run for it as for a parameter."""

    bundle: Bundle
    number: int | None = None
    """Which time it is, where there are several."""
    fresh: bool = False
    """Whether nothing that another test was told may be taken for its own."""

    @property
    def label(self) -> str:
        """What stands for it in a test's name."""
        label = LABEL.sub("-", self.bundle.name)
        return f"{label}-{self.number}" if self.number else label

    def expected(self, checkpoint: str) -> Path | None:
        """Return the folder of the bundle's goldens, where they are of this checkpoint."""
        same = self.bundle.incident.checkpoint.name == checkpoint
        return self.bundle.folder / EXPECTED if same else None


@dataclass
class Replays:
    """What is sent again, and what came of it."""

    repro: Bundle | None = None
    times: int = 1
    kept: tuple[Bundle, ...] = ()
    """Those that have been made tests."""
    refused: tuple[str, ...] = ()
    """Why others were not read."""
    family: Family | None = None
    checkpoint: Checkpoint | None = None
    lane: Lane | None = None
    """Those of `repro`, where it says which; the lane is None where the run is to choose."""
    notes: tuple[str, ...] = ()
    """What is said of where `repro` is replayed."""
    other_weights: bool = False
    """Whether `repro` is replayed with other weights than its own."""
    attempts: list[dict[str, Any]] = field(default_factory=list)
    """What each time came to: the records of `replaying.attempted`."""

    @property
    def any_kept(self) -> bool:
        """Whether any incident was made a test, be it one that cannot be read."""
        return bool(self.kept or self.refused)

    def conversations(self, known: Sequence[Conversation]) -> tuple[Conversation, ...]:
        """Return the conversations of the run: that of the incident of --repro is as it was."""
        told = self.repro.incident.conversation if self.repro else None
        if not told:
            return tuple(known)
        own = Conversation.model_validate_json(json.dumps(told))
        return tuple({**{one.name: one for one in known}, own.name: own}.values())

    def document(self) -> dict[str, Any] | None:
        """Return what the replay of --repro came to, as verdict.json has it; None without one."""
        if self.repro is None:
            return None
        return report.document(self.repro.folder, self.repro.incident, self.attempts, self.notes)

    def attempts_of(self, gate: str, test: str) -> list[Attempt]:
        """Return how often a gate's test is to be run for an incident, and for which."""
        found = [
            Attempt(one) for one in self.kept if (one.incident.gate, _function(one)) == (gate, test)
        ]
        one = self.repro
        if one and (one.incident.gate, _function(one)) == (gate, test):
            numbers = range(1, self.times + 1) if self.times > 1 else [None]
            found += [Attempt(one, number, fresh=True) for number in numbers]
        return found


def resolve(options: Options) -> Replays:
    """Read what a run is to send again, and settle where.

    Raises `UserError` for a bundle of --repro that is refused or cannot be replayed here.
    """
    project = options.rootdir
    if options.repro is None:
        return _kept(project)
    bundle = read(options.repro)
    for send in bundle.incident.sends:
        bundle.sent(send)  # one that cannot be read is told before anything boots
    told, notes = bundle.incident, []
    family = families.load(told.family, project)
    lane = None
    if not (options.lane or options.base_url):
        lane = replay_target.lane_of(bundle, project)
        if lane is None:
            where = told.lane.base_url or f"lane {told.lane.name}"
            notes.append(
                f"it was seen at {where}, which is not here: a lane of this machine serves"
            )
    checkpoint, absent = (None, "")
    if not options.checkpoint:
        checkpoint, absent = replay_target.checkpoint_of(bundle, family)
        if absent and options.base_url and not bundle.names(PROMPT_FILES):
            checkpoint, absent = None, ""
    return Replays(
        repro=bundle,
        times=options.times,
        family=family,
        checkpoint=checkpoint,
        lane=lane,
        notes=tuple([*notes, absent] if absent else notes),
        other_weights=bool(absent or options.checkpoint),
    )


def _kept(project: Path) -> Replays:
    folder = project / KEPT
    bundles, refused = [], []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.startswith("."):
            continue
        try:
            bundles.append(read(path))
        except UserError as error:
            refused.append(str(error))
    return Replays(kept=tuple(bundles), refused=tuple(refused))


def _function(bundle: Bundle) -> str:
    return bundle.incident.test.partition("[")[0]
