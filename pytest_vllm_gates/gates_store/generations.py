"""Keeps a team's goldens, incidents, histories and verdicts in a store.

Each push of a name is a generation, numbered from 1 and never changed. It has two objects:

    <kind>/<name>/<number>.json    its archive, SHA-256, bytes, and when it was pushed
    archives/<SHA-256>.tar.gz      the files

The archive is written first, and neither object is ever overwritten, so that a reader finds the
archive of each record, and two writers get two numbers.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_vllm_gates.bounded import limits
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import writing
from pytest_vllm_gates.gates_store import archive as archives
from pytest_vllm_gates.gates_store.objects import ObjectExistsError, Objects
from pytest_vllm_gates.gates_store.pack import packed

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("golden", "incidents", "history", "verdicts")
GOLDEN, VERDICTS = KINDS[0], KINDS[-1]
NAME = re.compile(r"[A-Za-z0-9][\w.+-]*(?:/[A-Za-z0-9][\w.+-]*)*")
NAME_CHARACTERS = 200
MAIN = "main"
RECORD_BYTES = 64 * limits.KIB
MOST = 100_000
"""With more generations of one name, the store probably answers yes to every query."""
FORMAT: Literal["pytest-vllm-gates/stored"] = "pytest-vllm-gates/stored"


class Generation(BaseModel):
    """The record of one push."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["pytest-vllm-gates/stored"]
    version: Literal[1]
    number: int = Field(ge=1)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(ge=0)
    created: str

    @property
    def archive(self) -> str:
        """The name of its archive's object."""
        return f"archives/{self.sha256}.tar.gz"


class Shelf:
    """The generations of one kind and name. Methods raise `UserError`."""

    def __init__(self, objects: Objects, kind: str, name: str = MAIN) -> None:
        """`kind`: one of `KINDS`; `name`: letters, digits and `._+-`, in parts with slashes."""
        if len(name) > NAME_CHARACTERS or not NAME.fullmatch(name):
            raise UserError(
                f"{limits.excerpt(name)} cannot be a name in a store\n"
                "use letters, digits and ._+-, parts with slashes between them"
            )
        self._objects = objects
        self._place = f"{kind}/{name}"

    def __str__(self) -> str:
        """Return its place, for people."""
        return f"{self._objects.shown.rstrip('/')}/{self._place}"

    def push(self, source: Path) -> tuple[Generation, bool]:
        """Add a file or folder; return its generation, and whether it is new.

        It is not new if the last generation has the same content.
        """
        data = packed(source)
        digest = hashlib.sha256(data).hexdigest()
        number = self.count()
        if number and (last := self.generation(number)).sha256 == digest:
            return last, False
        record = Generation(
            format=FORMAT,
            version=1,
            number=number + 1,
            sha256=digest,
            bytes=len(data),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        self._create(record.archive, data)
        while not self._create(self._object(record.number), _encoded(record)):
            record = record.model_copy(update={"number": record.number + 1})
        return record, True

    def count(self) -> int:
        """Return the number of generations, which is also the number of the last one."""
        if not self._objects.exists(self._object(1)):
            return 0
        there, missing = 1, 2
        while self._objects.exists(self._object(missing)):
            if missing > MOST:
                raise UserError(
                    f"{self}: more than {MOST:,} generations: check that this is a store"
                )
            there, missing = missing, 2 * missing
        while missing - there > 1:
            middle = (there + missing) // 2
            if self._objects.exists(self._object(middle)):
                there = middle
            else:
                missing = middle
        return there

    def generation(self, number: int) -> Generation:
        """Return the record of a generation."""
        name = self._object(number)
        data = self._objects.read(name, RECORD_BYTES)
        if data is None:
            raise UserError(
                f"{self} has no generation {number}\n"
                f"list the generations: vllm-gates store list {self._objects.shown} "
                + self._place.replace("/", " --name ", 1)
            )
        try:
            record = Generation.model_validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise UserError(
                f"{self._objects.shown}: {name} is not a record of a push: {first['msg']}\n"
                "check that this URL is a store"
            ) from error
        if record.number != number:
            raise UserError(
                f"{self._objects.shown}: {name} has the number {record.number} inside: somebody "
                "changed the store by hand"
            )
        return record

    def all(self) -> Iterator[Generation]:
        """Yield every generation, the first one first."""
        for number in range(1, self.count() + 1):
            yield self.generation(number)

    def unpack(self, record: Generation, folder: Path) -> None:
        """Unpack a generation into an empty folder; a changed archive is refused."""
        data = self._objects.read(record.archive, archives.ARCHIVE_BYTES)
        if data is None:
            raise UserError(
                f"{self._objects.shown}: {record.archive}, which generation {record.number} of "
                f"{self._place} names, is missing\npush it again, or pull another: --number N"
            )
        if hashlib.sha256(data).hexdigest() != record.sha256:
            raise UserError(
                f"{self._objects.shown}: {record.archive} differs from the pushed archive: its "
                "SHA-256 changed\nremove it, and push again"
            )
        with tempfile.NamedTemporaryFile(prefix="vllm-gates-store-", suffix=".tar.gz") as file:
            file.write(data)
            file.flush()
            archives.unpack(Path(file.name), folder)

    def unpack_whole(self, record: Generation, folder: Path) -> None:
        """Unpack a generation into a new folder, which appears whole or not at all."""
        with writing(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".pulled-") as aside:
                whole = Path(aside, "whole")
                whole.mkdir()
                self.unpack(record, whole)
                whole.rename(folder)

    def _object(self, number: int) -> str:
        return f"{self._place}/{number}.json"

    def _create(self, name: str, data: bytes) -> bool:
        try:
            self._objects.create(name, data)
        except ObjectExistsError:
            return False
        return True


def _encoded(record: Generation) -> bytes:
    return (record.model_dump_json(indent=1) + "\n").encode()
