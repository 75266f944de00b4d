"""Finds commands in scripts and pages, and parses them with the real parsers."""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from _pytest.mark.expression import Expression

from pytest_vllm_gates.cli import main as cli_main
from pytest_vllm_gates.options import read

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

ROOT = Path(__file__).parent.parent
OURS = ("pytest", "vllm-gates", "python", "python3")
"""Programs that are read by their own parsers."""
OF_OTHERS = {
    "$PYTHON", "apt-get", "cat", "cd", "codespell", "cp", "curl", "docker", "export", "git", "hf",
    "kubectl", "mkdir", "mutmut", "mv", "mypy", "openllm", "pip", "podman", "printf", "rm", "ruff",
    "sed", "seq", "sh", "srun", "ssh", "xargs",
}  # fmt: skip
"""Programs that a page may name and nobody can try without what they need."""
STANDING_FOR = {
    "URL": "http://127.0.0.1:8000/v1",
    "N": "2",
    "SECONDS": "60",
    "IDLE": "20m",
    "PID": "1",
}
"""What pages write for a value that has to be of a kind; every other word may stay as it is."""
BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`((?:pytest|vllm-gates|python -m|python benchmarks/)\s[^`]+)`(?!`)")
BEGINNING = re.compile(r"\$ |(?:\S*/)?(?:pytest|vllm-gates|python3?) ")
COMMENT = re.compile(r"\s{2,}|\s+#\s")
ASSIGNED = re.compile(r"[A-Z_]+=.*", re.DOTALL)


class NoCommand(Exception):  # noqa: N818 - an answer
    """A line is none that its program would take."""


def lines(page: str) -> Iterator[str]:
    """Yield every command line of a page, without what is said of it."""
    for _, kind, block in BLOCK.findall(page):
        if kind not in ("console", "text", "bash", "sh"):
            continue
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            begins = BEGINNING.match(line) if kind == "text" else re.match(r"[^\s#]", line)
            if begins:
                yield COMMENT.split(line.removeprefix("$ "))[0]
    for span in SPAN.findall(BLOCK.sub("", page)):
        words = span.split()
        # In a sentence a command's bare name is its name, and no call of it.
        yield " ".join([*words, "--help"] if words[0] == "vllm-gates" and not words[2:] else words)


def commands(script: str) -> Iterator[list[str]]:
    """Yield the words of every command of a script, what is between `$(` and `)` aside."""
    script = re.sub(r"\$\([^()]*\)", "x", script)
    parts = shlex.shlex(script.replace("\n", " ; "), posix=True, punctuation_chars=True)
    parts.whitespace_split, parts.commenters = True, ""
    words_so_far: list[str] = []
    into = False
    for operator, words in itertools.groupby(parts, lambda word: not set(word) - set(";|&<>()")):
        group = [*words]
        if operator:
            into = ">" in group[0] or "<" in group[0]
            if not into and words_so_far:
                yield words_so_far
                words_so_far = []
            continue
        words_so_far += group[1:] if into else group
        into = False
    if words_so_far:
        yield words_so_far


def is_ours(word: str) -> bool:
    """Return whether a word is a program that is read by its own parser."""
    return "=" not in word and Path(word).name in OURS


def meant(line: str) -> Iterator[list[str]]:
    """Yield the commands of a page's line, with something in place of each placeholder."""
    line = re.sub(r"<([\w-]+)>", r"\1", line)
    line = re.sub(r" \[[A-Z-][^\]]*\]", "", line)
    for words in commands(line):
        bare = [*itertools.dropwhile(ASSIGNED.fullmatch, words)]
        if not bare:
            continue
        if "-c" in bare and not is_ours(bare[0]):
            yield from meant(bare[bare.index("-c") + 1])
        program = next((at for at, word in enumerate(bare) if is_ours(word)), 0)
        yield [STANDING_FOR.get(word, word) for word in bare[program:]]


def all_tried(line: str, config: pytest.Config) -> None:
    """Have every command of a page's line read, as `tried` does."""
    for words in meant(line):
        tried(words, config)


def tried(words: Sequence[str], config: pytest.Config) -> None:
    """Have a command's own parser read it, and nothing run; `config` is any that pytest made.

    Raises `NoCommand`, or what the parser raises, for what it does not take.
    """
    name = Path(words[0]).name
    if name == "pytest":
        parser = config._parser
        if not words[2:] and words[-1] in parser.optparser._option_string_actions:
            return  # an option's name in a sentence
        config.option = parser.parse(list(words[1:]), argparse.Namespace())
        Expression.compile(config.option.markexpr)
        Expression.compile(config.option.keyword)
        read.parse(config)
    elif name == "vllm-gates":
        try:
            cli_main.parser().parse_args(words[1:])
        except SystemExit as ended:
            if ended.code:  # 0 where it is asked for help
                raise
    elif name == "nox":
        _sessions(words)
    elif name in OURS:
        _python(words)
    elif name not in OF_OTHERS:
        raise NoCommand(f"{name} is no program that pages name: {shlex.join(words)}")


def _sessions(words: Sequence[str]) -> None:
    """Raise `NoCommand` if `nox -s` names a session that the noxfile lacks."""
    known = re.findall(
        r"^@nox\.session\ndef (\w+)\(",
        (ROOT / "noxfile.py").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    named = words[2:] if words[1:2] == ["-s"] else []
    if not named or not set(named) <= set(known):
        raise NoCommand(f"noxfile.py lacks a session: {shlex.join(words)}")


def _python(words: Sequence[str]) -> None:
    target, arguments = (words[1], words[2:]) if words[1] != "-m" else (words[2], words[3:])
    if words[1] == "-m":
        if importlib.util.find_spec(target) is None:
            raise NoCommand(f"there is no module {target}")
        if not target.startswith("pytest_vllm_gates"):
            return
    elif words[1].startswith("-"):
        return
    elif not (ROOT / target).is_file():
        raise NoCommand(f"there is no file {target}")
    used_options = {word.partition("=")[0] for word in arguments if word.startswith("--")}
    if unknown := used_options - known_options(words[1] == "-m", target):
        raise NoCommand(f"{target} has no option {', '.join(sorted(unknown))}")


@cache
def known_options(module: bool, target: str) -> frozenset[str]:
    """Return the options a program of ours tells with `--help`; none where it takes none."""
    place = Path(importlib.util.find_spec(target).origin or "") if module else ROOT / target  # type: ignore[union-attr]
    if "argparse" not in place.read_text(encoding="utf-8"):
        return frozenset()
    help_output = subprocess.run(
        [sys.executable, *(["-m"] if module else []), target, "--help"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return frozenset(re.findall(r"--[\w-]+", help_output.stdout))
