"""A family: a line of models served the same way, read from `families/<name>.toml`.

The file describes the family's main line. A variant that differs is a table `[members.<name>]` with
only its differences, and its name is `<family>/<member>`.
"""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from pytest_vllm_gates.catalog import outside, plans, toml
from pytest_vllm_gates.catalog.family_parts import (
    CheckpointEntry,
    Context,
    Gotcha,
    Sampling,
    Thinking,
    Tools,
    Unserved,
)
from pytest_vllm_gates.catalog.known_defects import EndingDefect
from pytest_vllm_gates.catalog.pooling import Pooling
from pytest_vllm_gates.catalog.prompt_format import Prompt
from pytest_vllm_gates.catalog.sources import FactSource, PrescribedTemplate
from pytest_vllm_gates.catalog.toml import choose, fold
from pytest_vllm_gates.catalog.vision import Vision
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHIPPED = Path(__file__).parent.parent / "families"
MEMBERS = "members"
MAIN = "main"
"""The folder of the main line's goldens, beside the members' folders."""
TAKEN = ("baselines", "incidents")
"""Folders of `golden/` that do not belong to a family."""


class Family(toml.Record):
    """The facts of a family, or of one member of it, whatever serves it."""

    name: toml.Name
    """`<family>`, or `<family>/<member>`."""
    title: toml.Sentence
    line: toml.Name
    """The main line's name as a member."""
    aliases: tuple[toml.Name, ...] = ()
    """Other names that `--model` accepts for it."""
    architectures: tuple[str, ...] = Field(min_length=1)
    model_types: tuple[str, ...] = Field(min_length=1)
    recognise: tuple[str, ...] = Field(default=("*",), min_length=1)
    """Patterns of repository or folder names, where members share an architecture."""
    prompt: Prompt
    context: Context
    checkpoints: tuple[CheckpointEntry, ...] = Field(min_length=1)
    serve: dict[str, Any] = Field(default_factory=dict)
    sampling: Sampling | None = None
    thinking: Thinking | None = None
    tools: Tools | None = None
    vision: Vision | None = None
    """How it reads images; absent if it reads only text."""
    pooling: Pooling | None = None
    """How it makes a vector of a text; absent if it writes answers."""
    load: dict[str, Any] = Field(default_factory=dict)
    """Changes of its planned load to `load.toml`."""
    throughput: dict[str, Any] = Field(default_factory=dict)
    """Changes of its throughput plan to `throughput.toml`."""
    not_applicable: dict[str, str] = Field(default_factory=dict)
    gotchas: tuple[Gotcha, ...] = ()
    unserved: tuple[Unserved, ...] = ()
    prescribed_template: PrescribedTemplate | None = None
    sources: tuple[FactSource, ...] = ()
    known_defects: tuple[EndingDefect, ...] = ()

    @model_validator(mode="after")
    def _plans(self) -> Family:
        plans.planned_traffic(self.load)
        plans.planned_throughput(self.throughput)
        return self

    def thinking_kwargs(self, state: Literal["on", "off", "unset"]) -> dict[str, bool]:
        """Return the chat-template keyword that puts thinking into `state`."""
        if self.thinking is None or self.thinking.switch is None or state == "unset":
            return {}
        return {self.thinking.switch: state == "on"}

    @property
    def thinks_always(self) -> bool:
        """Whether it thinks, and no keyword turns that off."""
        return self.thinking is not None and self.thinking.switch is None

    def native_context(self, source: str) -> int | None:
        """Return the context, in tokens, of a listed checkpoint of the Hub; None for others."""
        for entry in self.checkpoints:
            if entry.hub and entry.hub.lower() == source.lower():
                return entry.native or self.context.native
        return None

    @property
    def markers(self) -> tuple[str, ...]:
        """Every piece of wire format that must never reach a client's fields."""
        markers = [*self.prompt.special_tokens]
        if self.prompt.end_of_turn:
            markers.append(self.prompt.end_of_turn)
        if self.thinking:
            markers += [self.thinking.open, self.thinking.close]
        if self.tools:
            markers += self.tools.markers
        return tuple(dict.fromkeys(marker.strip() for marker in markers))

    def recognises(self, architectures: tuple[str, ...], model_type: str, source: str) -> bool:
        """Return whether a checkpoint is of this member, by its `config.json` and name."""
        is_of_family = model_type in self.model_types or set(architectures) & set(
            self.architectures
        )
        base = _base(source)
        return bool(is_of_family) and (
            self.lists(source) or any(fnmatch(base, pattern.lower()) for pattern in self.recognise)
        )

    def lists(self, source: str) -> bool:
        """Return whether a Hub id, or a folder of the same name, is among its checkpoints."""
        return any(
            entry.hub and _base(entry.hub) == _base(source) for entry in self.checkpoints
        ) or bool(self.entry_of_folder(source))

    def entry_of_folder(self, source: str) -> CheckpointEntry | None:
        """Return the checkpoint of this folder, in any spelling of the path."""
        folder = str(Path(source).expanduser().resolve())
        return next((entry for entry in self.checkpoints if entry.folder == folder), None)


def files(project: Path) -> dict[str, Path]:
    """Return every family's file by name; a project's own `families/*.toml` override."""
    return {
        path.name.removesuffix(".toml"): path
        for folder in (SHIPPED, project / "families")
        for path in sorted(folder.glob("*.toml"))
    }


def load(name: str, project: Path) -> Family:
    """Read the family or the member called `name`, or with that alias.

    Raises `UserError` for an unknown name, and for a fault anywhere in the file.
    """
    family_files = files(project)
    # `llama/3` is that member, and `llama3` an alias of the main line.
    if fold(name.partition("/")[0]) not in map(fold, family_files):
        for aliased in load_all(project):
            if fold(name) in map(fold, aliased.aliases):
                return aliased
    family_name, _, member = name.partition("/")
    family = choose("family", family_name, family_files)
    line, *members = _lines(family, family_files[family])
    if not member or fold(member) == fold(line.line):
        return line
    by_name = {member_family.name: member_family for member_family in members}
    known_names = [f"{family}/{line.line}", *by_name]
    chosen = choose("member", f"{family}/{member}", known_names)
    return by_name.get(chosen, line)


def recognise(
    architectures: tuple[str, ...], model_type: str, source: str, project: Path
) -> Family | None:
    """Return the family or member a checkpoint is of, by its `config.json` and its name.

    If several match, the order is: the one that lists the checkpoint, the one of that model
    type, the one with the more specific name pattern, and a main line before its members.
    """
    families = [
        family
        for family in load_all(project)
        if family.recognises(architectures, model_type, source)
    ]
    return max(
        families,
        key=lambda family: (
            family.lists(source),
            model_type in family.model_types,
            max(map(len, family.recognise)),
        ),
        default=None,
    )


def load_all(project: Path) -> Iterator[Family]:
    """Yield every family's main line and, after it, its members."""
    for name, path in sorted(files(project).items()):
        yield from _lines(name, path)


def _base(source: str) -> str:
    """Return a repository's or a folder's name, without its owner or path."""
    return source.rstrip("/").rpartition("/")[2].lower()


def _lines(family: str, path: Path) -> Iterator[Family]:
    text, table = outside.read(path)
    _refuse_taken(family, path, text, table.get(MEMBERS, {}))
    for part in (table, *table.get(MEMBERS, {}).values()):
        _place_folders(part, path.parent)
    members = table.pop(MEMBERS, {})
    yield toml.validated(path, text, {**table, "name": family}, Family)
    for member, changes in members.items():
        member_table = {**toml.merged(table, changes), "name": f"{family}/{member}", "line": member}
        yield toml.validated(path, text, member_table, Family, (MEMBERS, member))


def _refuse_taken(family: str, path: Path, text: str, members: Iterable[str]) -> None:
    """Raise `UserError` for a name whose folder of goldens belongs to something else."""
    if family.lower() in TAKEN:
        raise UserError(
            f"{path}: a family cannot be called {family!r}: golden/{family}/ has the project's "
            f"{family.lower()}\nrename the file"
        )
    for member in members:
        if member.lower() == MAIN:
            place = toml.place(path, text, (MEMBERS, member))
            raise UserError(
                f"{place}: a member cannot be called {member!r}: golden/{family}/{MAIN}/ contains "
                f"the main line's goldens\nrename [{MEMBERS}.{member}]; if "
                f"golden/{family}/{member}/ contains its goldens, rename that folder, too"
            )


def _place_folders(table: Any, folder: Path) -> None:
    """Make the checkpoints' folders absolute; validation reports wrong tables later."""
    checkpoints = table.get("checkpoints") if isinstance(table, dict) else None
    for checkpoint in checkpoints if isinstance(checkpoints, list) else ():
        if isinstance(checkpoint, dict) and isinstance(checkpoint.get("folder"), str):
            checkpoint["folder"] = str((folder / Path(checkpoint["folder"]).expanduser()).resolve())
