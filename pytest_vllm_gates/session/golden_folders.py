"""The folders of goldens: the current one, the old one, and the command that moves them.

Earlier versions kept a main line's goldens in `golden/<family>/<checkpoint>/`, beside its members'
folders. They are still read there; new ones are written to the current folder only.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog.family import MAIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_vllm_gates.session.run import Subject

PACKAGE = Path(__file__).parent.parent
FOLDER = "golden"
SUFFIX = ".txt"
GIT_TIMEOUT_S = 10.0


def folder(root: Path, subject: Subject) -> Path:
    """Return the folder of the goldens of one family and checkpoint, below a folder of goldens."""
    family, _, member = subject.family.name.partition("/")
    return root / family / (member or MAIN) / subject.checkpoint.name


def old_folder(root: Path, subject: Subject) -> Path | None:
    """Return the folder in which earlier versions kept them; None if it is the same.

    A member or `main` may have the name of the checkpoint: only files directly in the folder count.
    """
    family, _, member = subject.family.name.partition("/")
    return None if member else root / family / subject.checkpoint.name


def notes(project: Path, here: Path, subject: Subject) -> Iterator[str]:
    """Yield the next step for a project's goldens in the old folder; nothing if there are none.

    `here` is the folder in which the user types the command.
    """
    new, old = folder(project / FOLDER, subject), old_folder(project / FOLDER, subject)
    if old is None:
        return
    read: list[Path] = []
    unread: list[Path] = []
    for path in sorted(old.glob(f"*{SUFFIX}")):
        if path.is_file() and not path.name.startswith("."):
            (unread if (new / path.name).exists() else read).append(path)
    name, new_name = old.relative_to(project), new.relative_to(project)
    if read:
        yield f"goldens are still read from their old folder {name}; to move them, run:"
        enter = "" if here.resolve() == project.resolve() else f"cd {shlex.quote(str(project))} && "
        yield f"  {enter}{_move(project, old, new, read)}"
    if unread:
        yield (
            f"old goldens are not read, because {new_name} contains newer ones (delete them?): "
            + ", ".join(str(path.relative_to(project)) for path in unread)
        )


def _move(project: Path, old: Path, new: Path, files: Sequence[Path]) -> str:
    """Return the shell command that moves these files of the old folder, run in the project."""
    git = _are_tracked(project, files)
    source, target = (shlex.quote(str(path.relative_to(project))) for path in (old, new))
    others = old in new.parents or any(path.is_dir() for path in old.iterdir())
    if others or new.exists():
        # Neither command overwrites a file of the new folder.
        move = "git mv -k" if git else "mv -n"
        return f"mkdir -p {target} && {move} {source}/*{SUFFIX} {target}/"
    above = shlex.quote(str(new.parent.relative_to(project)))
    return f"mkdir -p {above} && {'git mv' if git else 'mv'} {source} {target}"


def _are_tracked(project: Path, files: Sequence[Path]) -> bool:
    """Return whether git tracks each of these files."""
    command = ["git", "--literal-pathspecs", "ls-files", "--error-unmatch", "--"]
    try:
        done = subprocess.run(
            [*command, *(str(path.relative_to(project)) for path in files)],
            cwd=project, stdin=subprocess.DEVNULL, capture_output=True, check=False,
            timeout=GIT_TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def shipped_root() -> Path:
    """Return the folder of the goldens that ship: in the package, or beside it in a checkout."""
    packaged = PACKAGE / FOLDER
    return packaged if packaged.is_dir() else PACKAGE.parent / FOLDER
