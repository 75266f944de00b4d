"""Features that vLLM turned off or replaced at its start, compared with its flags."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import Field, field_validator, model_validator

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.server.log import without_prefix
from pytest_vllm_gates.server.startup import beginning
from pytest_vllm_gates.server.value_pattern import ValuePattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

FILE = data.FOLDER / "fallbacks.toml"
CONFIGURED = re.compile(r"Initializing a V1 LLM engine .* with config: ")
"""The line with the whole configuration: without it, the log level hides more lines."""
DEVICE = re.compile(r"device_config=(\w+)")
OFF = frozenset({"False", "0", "None", ""})


class LogSource(toml.Record):
    """The place of a text in vLLM's own code, and the versions that have it."""

    file: str = ""
    """Relative to the package `vllm`."""
    text: str = ""
    versions: str = ">=0"
    composed: bool = False
    """Whether it is in none of the releases that were read."""

    @field_validator("versions")
    @classmethod
    def _specifies(cls, versions: str) -> str:
        try:
            SpecifierSet(versions)
        except InvalidSpecifier as error:
            raise ValueError(f"{versions!r} is not a set of versions") from error
        return versions

    @model_validator(mode="after")
    def _has_a_source(self) -> LogSource:
        if self.composed == bool(self.file and self.text):
            raise ValueError("expected a file of vLLM with its text, or composed = true")
        return self


class Words(LogSource):
    """A sentence of vLLM's log that reports another choice than the requested one."""

    pattern: str

    @field_validator("pattern")
    @classmethod
    def _is_a_pattern(cls, pattern: str) -> str:
        re.compile(pattern)
        return pattern


class Silent(LogSource):
    """A change on one device that the log does not report."""

    device: str


class Topic(toml.Record):
    """One feature that flags request and that vLLM may turn off or replace."""

    name: toml.Name
    flags: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    nothing: tuple[str, ...] = ()
    """Values that request nothing."""
    told: tuple[ValuePattern, ...] = ()
    """Patterns of one group, the value that is used."""
    every: bool = False
    """Whether the log may report several values, one of which must be the requested one."""
    same: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Other spellings of a requested value."""
    must_tell: bool = False
    asks_for_any: bool = False
    """Whether the flag is a table, and the log reports only whether there is one."""
    record: bool = False
    """Whether the value is recorded in the golden, because no fact of `startup.toml` has it."""
    words: tuple[Words, ...] = ()
    silent: tuple[Silent, ...] = ()


class Topics(toml.Record):
    """The contents of the file."""

    topics: tuple[Topic, ...]


@dataclass(frozen=True)
class Fallback:
    """A feature that was requested and is not served."""

    topic: str
    asked: str
    """The flag or variable with its value."""
    says: str


@dataclass(frozen=True)
class Choices:
    """vLLM's choices at one start, compared with its flags."""

    fallbacks: tuple[Fallback, ...] = ()
    decisions: Mapping[str, str] = field(default_factory=dict)
    """vLLM's choices where no flag requested one, by topic, in the log's words."""
    asked: Mapping[str, str] = field(default_factory=dict)
    """The requested features, by topic."""


def load() -> tuple[Topic, ...]:
    """Return the topics of the package."""
    return toml.load(FILE, Topics).topics


def read(
    text: str,
    serve: Mapping[str, Any],
    env: Mapping[str, str],
    version: str | None = None,
    topics: Iterable[Topic] | None = None,
) -> Choices:
    """Compare a log with the flags and variables of the server that wrote it.

    `version` is vLLM's; without it, changes that the log does not mention are not reported.
    """
    lines = [*dict.fromkeys(without_prefix(line) for line in text.splitlines())]
    joined = "\n".join(lines)
    fallbacks: list[Fallback] = []
    decisions: dict[str, str] = {}
    asked: dict[str, str] = {}
    for topic in load() if topics is None else topics:
        found = [*_said(topic, lines)]
        told = [*_told(topic, joined)]
        if (asks := _asked(topic, serve, env)) is None:
            said = found or [one for one in told[:1] if topic.record and one not in OFF]
            if said:
                decisions[topic.name] = "; ".join(said)
            continue
        name, value = asks
        asked[topic.name] = f"{name} = {value}"
        says = _otherwise(topic, value, found, told) or _unsaid(topic, value, told, joined, version)
        if says:
            fallbacks.append(Fallback(topic.name, asked[topic.name], says))
    return Choices(tuple(fallbacks), decisions, asked)


def of_log(
    log: Path | None, serve: Mapping[str, Any], env: Mapping[str, str], version: str | None
) -> Choices:
    """Compare a log's file as `read` does; without a log nothing was chosen."""
    return read(beginning(log), serve, env, version)


def _asked(
    topic: Topic, serve: Mapping[str, Any], env: Mapping[str, str]
) -> tuple[str, str] | None:
    """Return the flag or variable that requests a topic, and its value as text."""
    for flag in topic.flags:
        value = _value(flag, serve)
        if value is not None and str(value).lower() not in topic.nothing:
            return f"--{flag.replace('_', '-')}", str(value)
    for name in topic.env:
        if env.get(name):
            return name, env[name]
    return None


def _value(flag: str, serve: Mapping[str, Any]) -> Any:
    """Return the value of a flag; `a.b` is a key of a table, or a flag with a dot in its name."""
    spelled = {name.replace("-", "_"): value for name, value in serve.items()}
    if flag in spelled:
        return spelled[flag]
    name, _, key = flag.partition(".")
    table = spelled.get(name)
    return table.get(key) if key and isinstance(table, dict) else None


def _said(topic: Topic, lines: Iterable[str]) -> Iterator[str]:
    """Yield, once, each sentence of the log that reports another choice."""
    patterns = [re.compile(words.pattern) for words in topic.words]
    said = (
        match[0].strip() for line in lines for regex in patterns if (match := regex.search(line))
    )
    yield from dict.fromkeys(said)


def _told(topic: Topic, lines: str) -> Iterator[str]:
    """Yield the values that the log reports, by the first pattern that matches."""
    for pattern in topic.told:
        found = [*dict.fromkeys(re.findall(pattern, lines))]
        if found:
            yield from found if topic.every else found[:1]
            if not topic.every:
                return


def _otherwise(topic: Topic, value: str, found: list[str], told: list[str]) -> str:
    """Return how the log differs from the request; '' if it does not."""
    if value in OFF and not topic.must_tell:
        # Requested to be off: if it is off, the reason does not matter.
        on = [one for one in told if one not in OFF]
        return f"the log reports {', '.join(on)}" if on and told[0] == "True" else ""
    if found:
        return f"the log contains: {' '.join(found)}"
    if topic.asks_for_any:
        return f"the log reports {told[0]}" if told and told[0] in OFF else ""
    right = {one.lower() for one in (value, *topic.same.get(value.lower(), ()))}
    if told and not right & {one.lower() for one in told}:
        return f"the log reports {', '.join(told)}"
    return ""


def _unsaid(topic: Topic, value: str, told: list[str], lines: str, version: str | None) -> str:
    """Return the value that the log should report and does not, or vLLM's silent change."""
    if value in OFF:
        return ""
    if topic.must_tell and not told and CONFIGURED.search(lines):
        return f"the log does not report {' or '.join(topic.same.get(value, (value,)))}"
    device = DEVICE.search(lines)
    for silent in topic.silent:
        known = version and SpecifierSet(silent.versions).contains(version, prereleases=True)
        if known and device and device[1] == silent.device:
            return (
                f"the log does not report it, but on {silent.device} vLLM {version} sets "
                f"{silent.text} (vllm/{silent.file})"
            )
    return ""
