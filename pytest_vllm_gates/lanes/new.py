"""Composes a lane for a release of vLLM: its file, its lock, and a summary in words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog import of_release, releases
from pytest_vllm_gates.environment import overlay, release_lock
from pytest_vllm_gates.nightly.types import LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.nightly.types import NightlyWheel


@dataclass(frozen=True)
class NewLane:
    """A lane that is not written yet."""

    files: Mapping[Path, str]
    """The files to write, the lane's own file last."""
    done: tuple[str, ...]
    """The choices for this release, and their reasons, in one line each."""


def compose(
    file: Path,
    version: str,
    device: str,
    *,
    besides: Sequence[str] = (),
    title: str = "",
    wheel: NightlyWheel | None = None,
) -> NewLane:
    """Return the lane of vLLM `version` on `device`, with the requirements `besides`.

    `file` is the path of the lane's file, which does not exist yet. `wheel` replaces the release's;
    start and flags are the release's. Raises `UserError` for a release that does not resolve.
    """
    releases.parsed(version)
    lock = file.with_suffix(".txt")
    if wheel is None:
        made = release_lock.resolve(version, device, name=lock.stem, besides=besides)
        name = f"vLLM {version}"
    else:
        made = release_lock.here(version, device, name=lock.stem, besides=besides, wheel=wheel.url)
        name = f"vLLM at commit {wheel.sha[:LABEL]}"
    title = title or " with ".join(
        [f"{name} on {of_release.NAMES[device]}", *([", ".join(besides)] if besides else [])]
    )
    lines = [
        f"title = {json.dumps(title, ensure_ascii=False)}",
        f"vllm = {json.dumps(version, ensure_ascii=False)}",
        f"device = {json.dumps(device, ensure_ascii=False)}",
        f"lock = {json.dumps(lock.name, ensure_ascii=False)}",
    ]
    text = "".join(f"{line}\n" for line in lines)
    done = _done(version, device, made)
    if wheel is not None:
        done = [
            f"wheel: {wheel.url}",
            f"start and flags as of release {version}; the lock is for this machine only",
            *done,
        ]
    return NewLane({**made.files(lock), file: text}, tuple(done))


def _done(version: str, device: str, made: release_lock.ReleaseLock) -> list[str]:
    """Return the choices, in one line each."""
    start, found = releases.start(version), releases.table().devices[device]
    lines = [f"start: python {' '.join(start.server)}"]
    lines.append(
        f"renderer: python {' '.join(start.renderer)}"
        if start.renderer
        else "renderer: none in this release; prompts are rendered by the whole server"
    )
    if found.without:
        lines.append(f"left out, as a {device} cannot load them: {', '.join(found.without)}")
    lines += [f"flag {remark}" for remark in of_release.remarks(version, device)]
    for each in releases.needed(version, device):
        lines += [f"flag {name} = {value!r}: {each.why}" for name, value in each.serve.items()]
    if not releases.flags(version):
        listed = releases.flag_table().releases
        lines.append(
            f"flags: not checked, the table has only {listed[0]} to {listed[-1]}; preflight "
            "reads them once the lane is made"
        )
    values = of_release.defaults(version, device)
    if values.get("overlay"):
        names = [each.name for each in overlay.repairs(of_release.SHIPPED / values["overlay"])]
        idle = releases.repairs_left_out(version, names)
        lines.append(f"overlay {values['overlay']}: "
                     + ", ".join(name for name in names if name not in idle))  # fmt: skip
        if idle:
            lines.append(f"repairs this release does not need: {', '.join(idle)}")
    pins = sum(not line.startswith("#") for line in made.lock.splitlines())
    return [*lines, f"lock: {pins} packages"]
