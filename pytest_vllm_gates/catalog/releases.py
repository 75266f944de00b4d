"""Differences between releases of vLLM: entry points, flags, repairs, packages.

`data/releases.toml` is written by hand, `data/release_flags.toml` by
`python -m pytest_vllm_gates.environment.release_flags` from the releases' wheels.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from packaging.version import InvalidVersion, Version
from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

TABLE = data.FOLDER / "releases.toml"
FLAGS = data.FOLDER / "release_flags.toml"
Words = Annotated[tuple[str, ...], Field(strict=False)]
DeviceName = Literal["cpu", "cuda"]


class Span(toml.Record):
    """Releases from `since` up to and including `until`; open where one is not given."""

    since: str | None = None
    until: str | None = None

    def has(self, version: Version) -> bool:
        """Return whether a release is within; one before the release counts as that release."""
        release = Version(version.base_version)
        return (self.since is None or release >= Version(self.since)) and (
            self.until is None or release <= Version(self.until)
        )

    def __str__(self) -> str:
        parts = [f"since {self.since}"] if self.since else []
        return " ".join([*parts, *([f"up to {self.until}"] if self.until else [])])


class Start(Span):
    """How to start these releases."""

    server: Words
    renderer: Words | None = None


class RepairSpan(Span):
    """The releases that need a repair of an overlay."""

    name: str


class NeededFlags(Span):
    """Flags that a lane of these releases on a device needs, and why."""

    device: DeviceName
    why: toml.Sentence
    serve: dict[str, Any]


class FlagName(Span):
    """The name of a flag in these releases."""

    name: str


class Device(toml.Record):
    """The packages of a lane on a device."""

    package: str
    """The distribution of vLLM for it."""
    without: Words = ()
    """Packages left out, with their own requirements: this device's build cannot load them."""
    besides: Words = ()
    """Requirements that the resolution needs besides."""
    backend: str | None = None
    """The required build of torch; without it any build of torch for a CPU is refused."""


class Releases(toml.Record):
    """The table of releases that is written by hand."""

    notes: str
    """The address of a release's notes; `{version}` is the release."""
    devices: dict[str, Device]
    start: Annotated[tuple[Start, ...], Field(strict=False)]
    needed: Annotated[tuple[NeededFlags, ...], Field(strict=False)] = ()
    repairs: Annotated[tuple[RepairSpan, ...], Field(strict=False)] = ()
    names: Annotated[tuple[tuple[FlagName, ...], ...], Field(strict=False)] = ()
    """Flags with equal meanings under several names, each with its releases."""


class ReleaseFlags(toml.Record):
    """The generated table of flags."""

    releases: Words
    always: Words
    """Flags of every release listed."""
    flags: dict[str, Span]
    """Flags of some of them."""


@cache
def table() -> Releases:
    """Return the table that is written by hand."""
    return toml.load(TABLE, Releases)


@cache
def flag_table() -> ReleaseFlags:
    """Return the generated table of flags."""
    return toml.load(FLAGS, ReleaseFlags)


def parsed(version: str) -> Version:
    """Return a release's version; raises `UserError` for another text."""
    try:
        return Version(version)
    except InvalidVersion as error:
        raise UserError(
            f"vLLM {version!r}: expected a release such as 0.32.0\n"
            "list the releases: pip index versions vllm"
        ) from error


def start(version: str) -> Start:
    """Return how a release is started."""
    wanted = parsed(version)
    return next(each for each in table().start if each.has(wanted))


def needed(version: str, device: str) -> list[NeededFlags]:
    """Return the flags that a release needs on a device."""
    wanted = parsed(version)
    return [each for each in table().needed if each.device == device and each.has(wanted)]


def repairs_left_out(version: str, names: Iterable[str]) -> list[str]:
    """Return the named repairs that a release does not need; unlisted repairs stay."""
    wanted = parsed(version)
    spans = {each.name: each for each in table().repairs}
    return [name for name in names if name in spans and not spans[name].has(wanted)]


def flags(version: str) -> frozenset[str]:
    """Return the flags a release takes; empty for one outside the releases that were read.

    A release between two that were read, such as a patch, takes the flags of the span. The version
    of a wheel by commit (`0.23.1rc1.dev1403+g4080263bb`) counts from the last tag on main, and
    releases from branches are newer: its flags are not known.
    """
    if parsed(version).is_devrelease:
        return frozenset()
    wanted, listed = parsed(version), [Version(each) for each in flag_table().releases]
    if not min(listed) <= Version(wanted.base_version) <= max(listed):
        return frozenset()
    some = {name for name, span in flag_table().flags.items() if span.has(wanted)}
    return frozenset(flag_table().always) | some


def unknown(known: frozenset[str], names: Iterable[str]) -> list[str]:
    """Return the named flags that are not in `known`; empty if `known` is empty.

    argparse accepts a flag's beginning for the flag, and `no_` before a switch.
    """
    return [
        name
        for name in names
        if known and len(name) > 1 and not any(flag.startswith(_option(name)) for flag in known)
    ]


def _option(name: str) -> str:
    return name.partition(".")[0].replace("-", "_").removeprefix("no_")


def remark(name: str, version: str | None) -> str:
    """Return a remark on a flag that a release does not take: its releases, its other name."""
    other = name_in(name, version) if version else None
    if other:
        return f"{version} calls it {other}"
    span = flag_table().flags.get(_option(name))
    return f"vLLM has it {span}" if span else ""


def name_in(name: str, version: str) -> str | None:
    """Return a release's name of a flag that has several names; None if unknown."""
    wanted = parsed(version)
    for same in table().names:
        if any(each.name == _option(name) for each in same):
            return next(
                (each.name for each in same if each.has(wanted) and each.name != _option(name)),
                None,
            )
    return None


def translated(serve: dict[str, Any], version: str) -> tuple[dict[str, Any], list[str]]:
    """Return the flags as a release takes them, and remarks on renamed and dropped flags."""
    known, result, remarks = flags(version), dict[str, Any](), list[str]()
    for name, value in serve.items():
        if not unknown(known, [name]):
            result[name] = value
        elif other := name_in(name, version):
            result[other] = value
            remarks.append(f"{name} is called {other} in {version}")
        else:
            remarks.append(f"{name} left out: {remark(name, version) or f'not in {version}'}")
    return result, remarks


def notes(version: str) -> str:
    """Return the address of a release's notes."""
    return table().notes.format(version=version)
