"""The lane to go back to after a REJECT, its lock, and the commands that serve it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.checkpoints import fingerprint
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.lanes import commands as lanes_commands
from pytest_vllm_gates.verdict.verdict import Promotion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.session.run import Run


@dataclass(frozen=True)
class RollbackTarget:
    """The lane to go back to."""

    lane: str
    since: str | None = None
    """When it was promoted, where only the record of this project's runs says that it was."""


def back(
    promotion: Promotion,
    lane: str,
    against: str | None,
    history: Sequence[Mapping[str, Any]] = (),
) -> RollbackTarget | None:
    """Return the lane to go back to from `lane`; None where nothing was rejected, or none is known.

    The lane that a run was held against is what serves; without one it is what was promoted last,
    by `history`, the oldest first.
    """
    if promotion is not Promotion.REJECT:
        return None
    if against is not None and against != lane:
        return RollbackTarget(against)
    for earlier_run in reversed(history):
        if earlier_run["promotion"] == Promotion.PROMOTE:
            return RollbackTarget(str(earlier_run["lane"]), str(earlier_run["created"]))
    return None


def rollback(
    run: Run, promotion: Promotion, history: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any] | None:
    """Return `rollback` of the verdict; `history` is that of the runs before this one.

    None where nothing was rejected, or where no lane is known to have served.
    """
    target = back(promotion, run.lane.name, run.against.name if run.against else None, history)
    if target is None:
        return None
    project = run.options.rootdir
    same = target.lane == run.lane.name
    try:
        lane = lanes.load(target.lane, project)
    except UserError:
        return _gone(target)
    if same and not _tracked(lane.file, project):
        return None  # the package's own lane, and it is what was rejected: nothing to go back to
    commands = lanes_commands.commands(
        lane,
        [(subject.family, subject.checkpoint) for subject in run.subjects],
        overlay=lane.overlay_path if run.options.overlay else None,
        env=run.server_env,
    )
    if same:
        # What the lane was when it was promoted, neither its lock nor its flags of today.
        return _document(lane.name, None, [_as_it_was(lane, project, target), *commands])
    return _document(lane.name, lane, commands)


def _document(name: str, lane: Lane | None, commands: Sequence[str]) -> dict[str, Any]:
    lock = lane.lock_path if lane else None
    return {
        "lane": name,
        "lock": str(lock) if lock else None,
        "lock_sha256": fingerprint.file(lock) if lock else None,
        "command": "\n".join(commands),
    }


def _gone(target: RollbackTarget) -> dict[str, Any]:
    path = shlex.quote(f"lanes/{target.lane}.toml")
    return _document(
        target.lane,
        None,
        [f"# lane {target.lane} is no longer here; where it went:", f"git log --stat -- {path}"],
    )


def _as_it_was(lane: Lane, project: Path, target: RollbackTarget) -> str:
    files = [path for path in (lane.file, lane.lock_path) if path and _tracked(path, project)]
    names = " ".join(shlex.quote(str(path.relative_to(project))) for path in files)
    when = f'"$(git rev-list -1 --before={shlex.quote(target.since or "now")} HEAD)"'
    return f"git checkout {when} -- {names}"


def _tracked(path: Path, project: Path) -> bool:
    """Return whether a file is the project's own, not of a package that is installed inside it."""
    return path.is_relative_to(project) and not path.is_relative_to(lanes.SHIPPED)
