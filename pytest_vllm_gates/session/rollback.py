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
    """When it was promoted, if only the record of this project's runs shows that it was."""


def back(
    promotion: Promotion,
    lane: str,
    against: str | None,
    history: Sequence[Mapping[str, Any]] = (),
) -> RollbackTarget | None:
    """Return the lane to go back to from `lane`; None without a REJECT, or if none is known.

    The lane with which a run was compared is the one that serves; without it, the last promoted one
    of `history`, the oldest first.
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
    """Return `rollback` of the verdict; `history` contains the runs before this one.

    None without a REJECT, or if no lane is known to have served.
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
        return None  # the package's own lane was rejected: nothing to go back to
    commands = lanes_commands.commands(
        lane,
        [(subject.family, subject.checkpoint) for subject in run.subjects],
        overlay=lane.overlay_path if run.options.overlay else None,
        env=run.server_env,
    )
    if same:
        # The lane as it was promoted, with neither its lock nor its flags of today.
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
        [f"# lane {target.lane} is no longer here; its commits:", f"git log --stat -- {path}"],
    )


def _as_it_was(lane: Lane, project: Path, target: RollbackTarget) -> str:
    files = [path for path in (lane.file, lane.lock_path) if path and _tracked(path, project)]
    names = " ".join(shlex.quote(str(path.relative_to(project))) for path in files)
    when = f'"$(git rev-list -1 --before={shlex.quote(target.since or "now")} HEAD)"'
    return f"git checkout {when} -- {names}"


def _tracked(path: Path, project: Path) -> bool:
    """Return whether a file belongs to the project, not to a package installed inside it."""
    return path.is_relative_to(project) and not path.is_relative_to(lanes.SHIPPED)
