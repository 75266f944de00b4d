"""Finds secrets, and replaces them in everything that is written.

Standard library only and quick to import: the guard of every server loads this.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.redaction.patterns import SHAPES, spellings
from pytest_vllm_gates.redaction.prompts import Prompts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

SECRET_NAME = re.compile(r"TOKEN|KEY|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
REDACTED = "[redacted]"
LEAST = 6
"""Characters of the shortest value that is taken for a secret."""
MUCH = 4096
TIMES = 4
"""Passes over a line: the text around a replaced secret may look like another secret."""

# Names like those of secrets whose values are none: TOKENIZERS_PARALLELISM, MAX_TOKENS, KEY_FILE.
_HARMLESS_NAME = re.compile(
    r"TOKENIZ|KEYBOARD|KEYRING|(?:TOKENS|_FILE|_PATH|_DIR|_HOME|_SOCK|_NAME|_TYPE)$", re.IGNORECASE
)
_MORE_NAMES = re.compile(r"PASSPHRASE|(?:_PAT|_PWD|_PASS|_AUTH)$", re.IGNORECASE)
_NUMBER = re.compile(r"[\d.,:]+")
_HARMLESS = frozenset(
    (
        "false", "default", "disabled", "enabled", "undefined", "required", "optional", "missing",
        "not-needed", "not-set", "no-key", "no-key-required", "none-needed", "placeholder",
        "changeme", "password", "secret", "api-key", "api_key", "apikey", "dummy", "dummy-key",
    )
)  # fmt: skip
# What a table such as a server's flags or a request's headers calls its secrets.
_ENTRY = re.compile(
    r"api[_-]?keys?|hf[_-]token|(?:auth|access|refresh|session|security|bearer|hub)[_-]?token|"
    r"client[_-]?secret|secret[_-]?(?:access[_-]?)?key|passw(?:or)?d|private[_-]?key|"
    r"(?:proxy-)?authorization|(?:set-)?cookie|x-[a-z-]*(?:token|key|secret)",
    re.IGNORECASE,
)
_USERINFO = re.compile(r"://([^/\s?#\"'<>\\]+)@")


def names_a_secret(name: str) -> bool:
    """Return whether the value of an environment variable of this name is to be kept secret."""
    speaks = SECRET_NAME.search(name) or _MORE_NAMES.search(name)
    return bool(speaks) and not _HARMLESS_NAME.search(name)


def hides(value: str) -> bool:
    """Return whether a value can be a secret at all; the short and the common would be everywhere.

    The path of a file is none, though the file may hold one.
    """
    return (
        len(value) >= LEAST
        and value.lower() not in _HARMLESS
        and value not in REDACTED
        and _NUMBER.fullmatch(value) is None
        and not (value.startswith("/") and os.path.exists(value))  # noqa: PTH110 - pathlib is slow to import
    )


class Redactor:
    """Replaces known secrets, and everything that looks like one.

    A value is found plain and as URLs, JSON, HTML, Python and base64 spell it.
    """

    def __init__(self, values: Iterable[str] = (), prompts: Prompts | None = None) -> None:
        """`prompts` says what becomes of prompts and answers, where they are at hand as such."""
        self.prompts = prompts or Prompts()
        self._values: frozenset[str] = frozenset()
        self._spellings: tuple[str, ...] = ()
        self._spaced: tuple[str, ...] = ()
        self.learn(*values)

    def learn(self, *values: str | None) -> None:
        """Take these values for secrets from now on, but those that cannot be any (`hides`)."""
        lines = {line for value in values if value for line in re.split(r"[\r\n]+", value)}
        fresh = {line.strip() for line in lines if hides(line.strip())} - self._values
        if fresh:
            self._values |= fresh
            all_spellings = {spelling for value in self._values for spelling in spellings(value)}
            self._spaced = tuple(
                sorted(spelling for spelling in all_spellings if len(spelling.split()) > 1)
            )
            self._spellings = tuple(sorted(all_spellings.difference(self._spaced)))

    def learn_environment(self, environment: Mapping[str, str]) -> None:
        """Take the values of variables that speak of a secret, and what looks like one in any."""
        for name, value in environment.items():
            if names_a_secret(name):
                self.learn(value, *value.split(","))
            self.learn_text(value)

    def learn_text(self, text: str) -> None:
        """Take what looks like a secret in a text, to find it where it does not look like one."""
        self.learn(*(text[begin:end] for begin, end in self._spans(text)))
        self.learn_url(text)

    def learn_url(self, url: str | None) -> None:
        """Take the password of a URL for a secret, or the token that stands in the user's place."""
        for match in _USERINFO.finditer(url or ""):
            from urllib.parse import unquote  # noqa: PLC0415 - a URL with a password is rare

            user, _, password = match[1].partition(":")
            userinfo = unquote(match[1])
            self.learn(password or user, unquote(password or user))
            if password:
                self.learn(userinfo)

    def learn_arguments(self, arguments: Sequence[str]) -> None:
        """Take what follows an option of a command line whose name speaks of a secret."""
        hot = False
        for argument in arguments:
            name, equals, value = argument.partition("=")
            if argument.startswith("--"):
                hot = _ENTRY.fullmatch(name[2:]) is not None
                self.learn(value if equals and hot else None)
            elif hot:
                self.learn(argument)
            self.learn_url(argument)

    def learn_table(self, table: Mapping[str, Any]) -> None:
        """Take the secrets of a table such as a server's flags."""
        for name, value in table.items():
            members = value if isinstance(value, list | tuple) else [value]
            if _ENTRY.fullmatch(name):
                self.learn(*(member for member in members if isinstance(member, str)))

    def learn_hub_token(self, environment: Mapping[str, str]) -> None:
        """Take the token that `hf auth login` left in its file."""
        home = environment.get("HOME", "")
        cache = environment.get("XDG_CACHE_HOME") or f"{home}/.cache"
        folder = environment.get("HF_HOME") or f"{cache}/huggingface"
        for path in (environment.get("HF_TOKEN_PATH"), f"{folder}/token"):
            try:
                with open(path or "", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                    self.learn(file.read(4096).strip())
            except OSError:
                continue

    def text(self, text: str) -> str:
        """Return a text with every secret in it replaced."""
        parts: list[str] = []
        at = 0
        for begin, end in _merged(self._spans(text)):
            if begin >= at:  # else it is in a line that was looked at
                first, last = text.rfind("\n", 0, begin) + 1, text.find("\n", end)
                last = len(text) if last < 0 else last
                parts += text[at:first], self._line(text[first:last])
                at = last
        return "".join([*parts, text[at:]]) if parts else text

    def data(self, data: bytes) -> bytes:
        """Return what is text in any encoding that has ASCII in it, with every secret replaced."""
        text = data.decode("latin-1")
        clean = self.text(text)
        return data if clean == text else clean.encode("latin-1")

    def pieces(self, pieces: Sequence[bytes]) -> list[bytes]:
        """Return what arrived in pieces with every secret replaced, also one that spans several.

        There are as many pieces as before; the mark is in the one the secret began in.
        """
        text = b"".join(pieces).decode("latin-1")
        spans = _merged(self._spans(text))
        clean, begin = [], 0
        for piece in pieces:
            end = begin + len(piece)
            clean_piece, at = "", begin
            for first, last in spans:
                if first < end and last > begin:
                    clean_piece += text[at : max(first, begin)] + (
                        REDACTED if first >= begin else ""
                    )
                    at = min(last, end)
            clean.append((clean_piece + text[at:end]).encode("latin-1"))
            begin = end
        return clean

    def json(self, value: Any) -> Any:
        """Return a JSON value with every secret in it replaced; what is no JSON becomes text."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, dict):
            return {
                self.text(str(name)): self._entry(str(name), member)
                for name, member in value.items()
            }
        if isinstance(value, tuple):
            return tuple(self.json(member) for member in value)
        if isinstance(value, list):
            return [self.json(member) for member in value]
        return self.text(str(value))

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return headers of a request or a response without keys and cookies."""
        return {
            self.text(name): REDACTED if _ENTRY.fullmatch(name) else self.text(value)
            for name, value in headers.items()
        }

    def failure(self, value: Any) -> Any:
        """Return what is told of a failure, in texts and tables of texts, with no prompt quoted."""
        if isinstance(value, str):
            return self.prompts.prose(self.text(value))
        if isinstance(value, dict):
            return {name: self.failure(member) for name, member in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.failure(member) for member in value)
        return self.json(value)

    def evidence(self, value: Any) -> Any:
        """Return a JSON value that may have prompts and answers in it, and secrets in those."""
        return self.prompts.json(self.json(value))

    def body(self, data: bytes) -> bytes:
        """Return a request's body; the same bytes where nothing of it is hidden."""
        return self.prompts.body(self.data(data))

    def response(self, pieces: Sequence[bytes]) -> list[bytes]:
        """Return a response in as many pieces as it arrived in."""
        return self.prompts.pieces(self.pieces(pieces))

    def _line(self, line: str) -> str:
        for _ in range(TIMES):
            clean = _without(line, self._spans(line))
            if clean == line:
                break
            line = clean
        return line

    def _entry(self, name: str, value: Any) -> Any:
        """Return a value of a table by the name it has there."""
        if _ENTRY.fullmatch(name):
            if isinstance(value, str):
                return REDACTED if hides(value) else value
            if isinstance(value, list | tuple):
                return [self._entry(name, member) for member in value]
        return self.json(value)

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        # A log says much the same again and again: most is told by looking at each word once.
        words = text if len(text) < MUCH else "\n".join({*text.split()})
        for spelling in self._spellings:
            if spelling in words:
                yield from _everywhere(spelling, text)
        for spelling in self._spaced:
            yield from _everywhere(spelling, text)
        for anchor, pattern in SHAPES:
            if anchor in words:
                for match in pattern.finditer(text):
                    yield match.span(match.lastindex or 0)


def of_process(environment: Mapping[str, str], arguments: Sequence[str] = ()) -> Redactor:
    """Return a redactor for the secrets in a process's environment and arguments."""
    redactor = Redactor()
    redactor.learn_environment(environment)
    redactor.learn_hub_token(environment)
    redactor.learn_arguments(arguments)
    return redactor


def _everywhere(part: str, text: str) -> Iterator[tuple[int, int]]:
    at = text.find(part)
    while at >= 0:
        yield at, at + len(part)
        at = text.find(part, at + 1)


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in order, those that overlap or touch as one."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def _without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    parts: list[str] = []
    at = 0
    for begin, end in _merged(spans):
        parts += text[at:begin], REDACTED
        at = end
    return "".join([*parts, text[at:]]) if parts else text
