"""The rules of detect-secrets, imported only if a text may match them.

`data/secret_library.toml` lists the plugins in use, and why the others are not used. A server's
guard runs without the environment's packages (`python -I -S`): they are found beside its
interpreter.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_vllm_gates import data
from pytest_vllm_gates.redaction import values
from pytest_vllm_gates.redaction.spans import lines_with

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from pytest_vllm_gates.redaction.spans import Span

PACKAGE = "detect_secrets"
TABLE = "secret_library.toml"
_AROUND = " \t\r\n=:\"'"


class Plugin(NamedTuple):
    """A plugin in use."""

    name: str
    anchors: tuple[str, ...]
    folded: bool
    """Whether the anchors are in lower case, for rules that ignore case."""
    random: bool
    """Whether a match must also look random, because its rule matches ordinary words, too."""


def spans(text: str, words: str, letters: set[str]) -> Iterator[Span]:
    """Yield the library's matches; `words` and `letters` are the text's, without repeats."""
    folded_words = folded = ""
    for plugin in plugins():
        if plugin.folded:
            folded_words = folded_words or words.lower()
            folded = folded or text.lower()
        within = folded_words if plugin.folded else words
        anchors = [
            anchor
            for anchor in plugin.anchors
            if (plugin.folded or letters.issuperset(anchor)) and anchor in within
        ]
        if anchors:
            for begin, end in lines_with(folded if plugin.folded else text, anchors):
                yield from _found(plugin, text[begin:end], begin)


def _found(plugin: Plugin, line: str, shift: int) -> Iterator[Span]:
    for rule in rules(plugin.name):
        for match in rule.finditer(line):
            begin, end = match.span(1 if _has_secret_group(plugin.name, match) else 0)
            # Some rules include the characters around the secret.
            begin += len(line[begin:end]) - len(line[begin:end].lstrip(_AROUND))
            end = begin + len(line[begin:end].rstrip(_AROUND))
            if not plugin.random or values.random(line[begin:end]):
                yield shift + begin, shift + end


@cache
def plugins() -> tuple[Plugin, ...]:
    """Return the plugins in use."""
    with (data.FOLDER / TABLE).open("rb") as file:
        table: dict[str, Any] = tomllib.load(file)
    return tuple(
        Plugin(
            name, tuple(entry["anchors"]), entry.get("folded", False), entry.get("random", False)
        )
        for name, entry in table["used"].items()
    )


@cache
def rules(plugin: str) -> tuple[re.Pattern[str], ...]:
    """Return the patterns of a plugin; none if the library is not installed or lacks it."""
    try:
        module = _imported(f"{PACKAGE}.plugins.{plugin}")
    except ImportError:
        return ()
    detectors = (
        member()
        for member in vars(module).values()
        if isinstance(member, type) and member.__module__ == module.__name__
    )
    return tuple(rule for each in detectors for rule in getattr(each, "denylist", ()))


def _has_secret_group(plugin: str, match: re.Match[str]) -> bool:
    """Return whether group 1 is the secret: in other plugins, groups are parts of its beginning."""
    return plugin == "aws" and bool(match.lastindex)


def _imported(name: str) -> Any:
    if not sys.flags.no_site:
        return importlib.import_module(name)
    folder = _site_packages()
    if folder in sys.path:
        return importlib.import_module(name)
    # At the end, and only here: these packages must not replace the standard library.
    sys.path.append(folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


def _site_packages() -> str:
    """Return the folder of the packages of this interpreter's environment."""
    prefix = Path(sys.executable).parent.parent
    scheme = {"base": str(prefix), "platbase": str(prefix)}
    if not (prefix / "pyvenv.cfg").is_file():
        scheme = {}
    return sysconfig.get_path("purelib", vars=scheme or None)
