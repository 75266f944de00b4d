"""Makes the runs of an atlas: a lane for each release, the gates for each family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.atlas import kept
from pytest_vllm_gates.atlas.plan import GATES
from pytest_vllm_gates.bisection import gates_run
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import write_together
from pytest_vllm_gates.lanes import new

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class AtlasSession:
    """The folder in which runs are made and kept."""

    project: Path
    atlas: Path
    device: str
    cache: Path
    say: Callable[[str], None]

    def lane(self, release: str) -> Path:
        """Return the file of a lane of that release, written if it is missing.

        A project's lane with `vllm = RELEASE` takes precedence over one that is made here. Raises
        `UserError` for a release that does not resolve.
        """
        for name, file in lanes.files(self.project).items():
            if file.is_relative_to(self.project / "lanes") and self._is_of(name, release):
                return file
        file = self.atlas / kept.LANES / f"{self.device}-{release}.toml"
        if not file.is_file():
            self.say(f"{file.stem}: resolving")
            write_together(new.compose(file, release, self.device).files)
        return file

    def make(self, release: str, family: str, lane: Path) -> str:
        """Run the gates of a family on a release; return the problem, or ''.

        A run that is cut off leaves no verdict, and is repeated the next time.
        """
        folder = kept.folder(self.atlas, release, family)
        name = f"{release} {family}"
        try:
            loaded = lanes.load(str(lane), self.project)
            environment.prepare(loaded, cache=self.cache, progress=self.say)
        except UserError as error:
            return str(error)
        status, document = gates_run.run(
            ["--model", family, "--lane", str(lane), "-m", GATES],
            project=self.project,
            folder=folder,
            say=self.say,
            name=name,
        )
        if document is None:
            return f"no verdict: pytest ended with {status}, see {folder / gates_run.LOG}"
        return ""

    def _is_of(self, name: str, release: str) -> bool:
        try:
            lane = lanes.load(name, self.project)
        except UserError:
            return False
        return lane.vllm == release and (lane.device or self.device) == self.device
