"""The record of one option, and how a field of `Options` is declared with it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_vllm_gates.options.kinds import ValueKind

PREFIX = "gates-"
KEY = "option"
"""The key of an option's record in the metadata of its field."""

# Whether a command that repeats one check has an option: these, or the name of a gate.
ALWAYS = "always"
NEVER = "never"


@dataclass(frozen=True)
class Option:
    """One option of the command line, with its setting."""

    name: str
    """`--lane`; with `gates-` in it, the option's only name."""
    kind: ValueKind
    text: str
    """The help without the default."""
    metavar: str | None = None
    shown_default: str = ""
    """The default as the help shows it; '' if the help shows none."""
    const: str | None = None
    """The value of the option when it is given without one."""
    repeat: str = NEVER
    """ALWAYS, NEVER, or the gate whose repeat commands have the option."""
    other_lane: bool = True
    """Whether the run on the other lane of a comparison gets the option too."""
    promotes: bool = True
    """Whether a run with this option can promote."""
    wakes: bool = False
    """Whether the option activates the plugin; all others need one that does."""
    from_incident: bool = False
    """Whether a replay reads this from its incident rather than from the settings."""
    with_repro: bool = True
    """Whether the option may be typed beside `--repro`."""
    needs: tuple[str, str] | None = None
    """The field of an option that this one needs, and the message if it is missing.

    A message names other options by their fields, in braces.
    """
    excludes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The message for each field whose option contradicts this one."""
    default: Any = None
    default_factory: Callable[[], Any] | None = None
    """Makes a default whose import costs too much for an inert plugin."""
    field: str = ""
    """The field of `Options` that the option fills."""

    @property
    def long(self) -> str:
        """The name that no other plugin uses."""
        return self.name if PREFIX in self.name else f"--{PREFIX}{self.name.removeprefix('--')}"

    @property
    def short(self) -> str | None:
        """The name that another plugin may use too, or None."""
        return None if self.name == self.long else self.name

    @property
    def ini(self) -> str:
        """The name of the setting, which is also the option's `dest`."""
        bare = self.name.removeprefix("--").replace(PREFIX, "")
        return f"gates_{bare.replace('-', '_')}"

    @property
    def help(self) -> str:
        """The text that `--help` shows."""
        return f"{self.text} Default: {self.shown_default}." if self.shown_default else self.text

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments for argparse besides names, destination, default and help."""
        found: dict[str, Any] = {"action": self.kind.action}
        if self.metavar:
            found["metavar"] = self.metavar
        if self.const is not None:
            found |= {"nargs": "?", "const": self.const}
        return found

    def typed(self, name: str, value: Any) -> Iterator[str]:
        """Yield the words that give the option this value; none for the default."""
        if value == (self.default_factory() if self.default_factory else self.default):
            return
        for word in self.kind.write(value):
            yield from (name,) if word is None else (name, word)


def option(name: str, kind: ValueKind, text: str, **more: Any) -> Any:
    """Declare a field of `Options` that an option of the command line fills."""
    found = Option(name, kind, text, **more)
    if found.default_factory:
        return dataclasses.field(default_factory=found.default_factory, metadata={KEY: found})
    return dataclasses.field(default=found.default, metadata={KEY: found})


def options_of(record: type[Any]) -> tuple[Option, ...]:
    """Return every option that fills a field of this dataclass."""
    return tuple(
        dataclasses.replace(field.metadata[KEY], field=field.name)
        for field in dataclasses.fields(record)
        if KEY in field.metadata
    )
