"""Goldens on disk, through syrupy: whole or absent, written only when asked.

A project's own goldens lie in `golden/<family>/<checkpoint>/` under the rootdir; those that ship
in the package are read where the project has none.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from syrupy.data import SnapshotCollections
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from pytest_vllm_gates.facts.files import write_whole
from pytest_vllm_gates.facts.outcome import MissingGolden
from pytest_vllm_gates.judge import golden, numerics

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion
    from syrupy.data import SnapshotCollection
    from syrupy.location import PyTestLocation
    from syrupy.types import SnapshotIndex

    from pytest_vllm_gates.facts.numerics import Reference
    from pytest_vllm_gates.run import Run, Subject

PACKAGE = Path(__file__).parent
FOLDER = "golden"
SUFFIX = ".txt"
COLOUR = re.compile("\x1b\\[[0-9;]*m")


class GoldenExtension(SingleFileSnapshotExtension):
    """One readable file a golden, written whole or not at all."""

    _write_mode = WriteMode.TEXT
    file_extension = SUFFIX[1:]
    own: ClassVar[Path]
    """Where this project's goldens of one family and checkpoint lie, and where they are written."""
    shipped: ClassVar[Path]
    kept: ClassVar[Path | None]
    recording: ClassVar[bool]

    @classmethod
    def get_location(cls, *, test_location: PyTestLocation, index: SnapshotIndex) -> str:
        return str(cls.own / f"{index}{SUFFIX}")

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        return str(cls.own)

    @classmethod
    def matches_test_location(
        cls, *, test_location: PyTestLocation, snapshot_location: str
    ) -> bool:
        return Path(snapshot_location).parent == cls.own

    def discover_snapshots(self, **_: Any) -> SnapshotCollections:
        """Report nothing as unused to syrupy, which would delete it: that is not its to judge."""
        return SnapshotCollections()

    @classmethod
    def find(cls, name: str) -> Path | None:
        """Return the golden's file: the project's own, an incident's, or the shipped one."""
        for folder in (cls.own, cls.kept, cls.shipped):
            if folder and (path := folder / f"{name}{SUFFIX}").is_file():
                return path
        return None

    def read_snapshot_data_from_location(
        self, *, snapshot_location: str, snapshot_name: str, session_id: str
    ) -> str | None:
        path = self.find(Path(snapshot_location).name.removesuffix(SUFFIX))
        if path is None:
            return None
        try:
            return golden.read(path)
        except golden.CorruptGolden:
            if self.recording:
                return None
            raise

    @classmethod
    def write_snapshot_collection(
        cls,
        *,
        snapshot_collection: SnapshotCollection,
        name_order: dict[str, int] | None = None,
    ) -> None:
        data = next(iter(snapshot_collection)).data
        write_whole(Path(snapshot_collection.location), str(data))


class Goldens:
    """The goldens of one family and checkpoint, as a gate uses them."""

    def __init__(
        self,
        snapshot: SnapshotAssertion,
        run: Run,
        subject: Subject,
        gate: str,
        kept: Path | None = None,
    ) -> None:
        """`kept` holds an incident's goldens, read where the project has none of its own."""
        self._run = run
        self.own_used: list[Path] = []
        """The project's own goldens that were read."""
        self.recording = run.options.update_golden
        self.command = f"pytest --model {subject.family.name} -m {gate} --update-golden"
        """What a person types to record this gate's goldens."""
        self._extension = _placed(
            folder(run.options.rootdir, subject),
            shipped_root() / subject.family.name / subject.checkpoint.name,
            recording=self.recording,
            kept=kept,
        )
        self._snapshot = snapshot.use_extension(self._extension)
        self._snapshot.update_snapshots = self.recording

    def check(self, name: str, text: str) -> None:
        """Compare `text` with the golden called `name`, or record it when that was asked for.

        Raises `MissingGolden` where there is none and `AssertionError` with a line diff where it
        differs or the recorded file is corrupt.
        """
        path = self._find(name)
        if path is None and not self.recording:
            missing = self._extension.own / f"{name}{SUFFIX}"
            raise MissingGolden(
                f"no golden {name!r}; record it: {self.command}\nit would be {missing}"
            )
        before = self._whole(path)
        self._refuse_secrets(name, text)
        if self._snapshot(name=name) == text:
            if self.recording and before != text:
                self._note(name, before)
            return
        # Colours would end up in the verdict and in JUnit's XML.
        diff = COLOUR.sub("", "\n".join(self._snapshot.get_assert_diff()))
        raise AssertionError(
            f"{name} is not what was recorded in {path}\n"
            "(- recorded, + now)\n"
            f"{diff}\n"
            "A prompt the model was not trained on makes it worse without an error.\n"
            f"If the change is meant, accept it: {self.command}"
        )

    def recorded(self, name: str) -> str | None:
        """Return a golden's text, None where there is none; raises `AssertionError` if corrupt."""
        return self._whole(self._find(name))

    def of_lane(self, name: str, lane: str) -> str:
        """Return the name of the golden of one lane; those of other lanes stay in use."""
        self._run.goldens_used.update(self._extension.own.glob(f"{name}-*{SUFFIX}"))
        return f"{name}-{lane}"

    def reference(self, name: str, weights: str | None) -> Reference | None:
        """Return a recorded reference of these weights (their SHA-256), None where there is none.

        Raises `AssertionError` where it is of other weights; when recording, that is no reference.
        """
        text = self.recorded(name)
        found = numerics.parsed(text) if text else None
        if found is None or weights in (None, found.weights):
            return found
        if self.recording:
            return None
        raise AssertionError(
            f"the golden {name!r} was recorded from other weights ({found.weights[:12]}) than "
            f"these ({str(weights)[:12]}); if the new ones are meant: {self.command}"
        )

    def record(self, name: str, text: str) -> None:
        """Write a golden that is not compared letter by letter."""
        before = self.recorded(name)
        self._refuse_secrets(name, text)
        write_whole(self._extension.own / f"{name}{SUFFIX}", text)
        if before != text:
            self._note(name, before)

    def _refuse_secrets(self, name: str, text: str) -> None:
        """Raise `AssertionError` rather than record what is to be read by everybody."""
        if self.recording and self._run.redactor.text(text) != text:
            line = next(one for one in text.splitlines() if self._run.redactor.text(one) != one)
            raise AssertionError(
                f"the golden {name!r} is not recorded: it would hold a secret, or what looks like "
                f"one\n{line}\nleave it out of what is asked, and record again: {self.command}"
            )

    def _find(self, name: str) -> Path | None:
        self._run.goldens_used.add(self._extension.own / f"{name}{SUFFIX}")
        found = self._extension.find(name)
        if found and found.parent != self._extension.shipped and found not in self.own_used:
            self.own_used.append(found)
        return found

    def _note(self, name: str, before: str | None) -> None:
        written = self._extension.own / f"{name}{SUFFIX}"
        self._run.recorded[written] = "new" if before is None else "changed"

    def _whole(self, path: Path | None) -> str | None:
        """Return the recorded text; a corrupt golden fails, or is replaced when recording."""
        if path is None:
            return None
        try:
            return golden.read(path)
        except golden.CorruptGolden as error:
            if self.recording:
                return None
            raise AssertionError(
                f"the golden is corrupt: {error}\n"
                f"restore it (git checkout -- {path.name}) or record it again with --update-golden"
            ) from error


def folder(rootdir: Path, subject: Subject) -> Path:
    """Return where a project keeps its goldens of one family and checkpoint."""
    return rootdir / FOLDER / subject.family.name / subject.checkpoint.name


def _placed(
    own: Path, shipped: Path, *, recording: bool, kept: Path | None
) -> type[GoldenExtension]:
    """Return the extension for one folder; syrupy asks the class, not an instance, for paths."""

    class Placed(GoldenExtension):
        pass

    Placed.own, Placed.shipped, Placed.recording = own, shipped, recording
    Placed.kept = kept

    return Placed


def shipped_root() -> Path:
    """Return the folder of the goldens that ship: in the package, or beside it in a checkout."""
    packaged = PACKAGE / FOLDER
    return packaged if packaged.is_dir() else PACKAGE.parent / FOLDER
