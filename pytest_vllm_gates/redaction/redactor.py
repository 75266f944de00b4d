"""Finds secrets, and replaces them in everything that is written.

Standard library only and quick to import: the guard of every server loads this.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.redaction import library, pairs, patterns
from pytest_vllm_gates.redaction.blocks import KeyBlock
from pytest_vllm_gates.redaction.names import names_a_secret, surely_names_a_secret
from pytest_vllm_gates.redaction.prompts import Prompts
from pytest_vllm_gates.redaction.spans import Span, everywhere, merged, without
from pytest_vllm_gates.redaction.spellings import spellings
from pytest_vllm_gates.redaction.values import LEAST, REDACTED, hides

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MUCH = 4096
TIMES = 4
"""Passes over a line: the text around a replaced secret may look like another secret."""
# Fields of a list's members that are a name and its value, as in a HAR file or a container's env.
_NAME_FIELDS = ("name", "key")
_VALUE_FIELD = "value"
_DATA_URL = re.compile(r";base64,[A-Za-z0-9+/=]*+")
_USERINFO = re.compile(r"://([^/\s?#\"'<>\\]+)@")


class Redactor:
    """Replaces known secrets, and everything that looks like one.

    A value is found plain, and as spelled in URLs, JSON, HTML, Python and base64.
    """

    def __init__(self, values: Iterable[str] = (), prompts: Prompts | None = None) -> None:
        """`prompts` replaces prompts and answers, if a method gets them as such."""
        self.prompts = prompts or Prompts()
        self._values: frozenset[str] = frozenset()
        self._spellings: tuple[str, ...] = ()
        self._spaced: tuple[str, ...] = ()
        self.learn(*values)

    def learn(self, *values: str | None) -> None:
        """Treat these values as secrets from now on, except values that cannot be any (`hides`)."""
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
        """Learn the values of secret variables, and secret-looking text in all variables."""
        for name, value in environment.items():
            if names_a_secret(name):
                self.learn(value, *value.split(","))
            self.learn_text(value)

    def learn_text(self, text: str) -> None:
        """Learn secret-looking text, to find it also in places where it does not look secret.

        The text may contain prompts: only shapes that are searched for in prompts are learned.
        """
        self.learn(*(text[begin:end] for begin, end in self._spans(text, prompt=True)))
        self.learn_url(text)

    def learn_url(self, url: str | None) -> None:
        """Learn the password in a URL, or the token in place of its user."""
        for match in _USERINFO.finditer(url or ""):
            from urllib.parse import unquote  # noqa: PLC0415 - a URL with a password is rare

            user, _, password = match[1].partition(":")
            userinfo = unquote(match[1])
            self.learn(password or user, unquote(password or user))
            if password:
                self.learn(userinfo)

    def learn_arguments(self, arguments: Sequence[str]) -> None:
        """Learn the values after options of a command line that take secrets."""
        hot = False
        for argument in arguments:
            name, equals, value = argument.partition("=")
            if argument.startswith("--"):
                hot = surely_names_a_secret(name[2:])
                self.learn(value if equals and hot else None)
            elif hot:
                self.learn(argument)
            self.learn_url(argument)
            self.learn_text(argument)

    def learn_table(self, table: Mapping[str, Any]) -> None:
        """Learn the secrets in a table, for example a server's flags, and in its nested tables."""
        for name, value in table.items():
            self._learn_entry(str(name), value)

    def _learn_entry(self, name: str, value: Any) -> None:
        if isinstance(value, dict):
            self.learn_table(value)
        elif isinstance(value, list | tuple):
            for member in value:
                self._learn_entry(name, member)
        elif isinstance(value, str):
            if surely_names_a_secret(name) or pairs.is_secret(name, value):
                self.learn(value)
            self.learn_text(value)

    def learn_hub_token(self, environment: Mapping[str, str]) -> None:
        """Learn the token in the file that `hf auth login` wrote."""
        home = environment.get("HOME", "")
        cache = environment.get("XDG_CACHE_HOME") or f"{home}/.cache"
        folder = environment.get("HF_HOME") or f"{cache}/huggingface"
        for path in (environment.get("HF_TOKEN_PATH"), f"{folder}/token"):
            try:
                with open(path or "", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                    self.learn(file.read(4096).strip())
            except OSError:
                continue

    def text(self, text: str, block: KeyBlock | None = None) -> str:
        """Return a text with every secret in it replaced.

        `block` remembers, from one text to the next, whether lines belong to a private key.
        """
        if len(text) < LEAST and not (block and block.lines):
            return text
        text = without(text, self._spans(text, block or KeyBlock()))
        for _ in range(TIMES - 1):
            if REDACTED not in text:
                break
            # Only lines with a mark can have changed; for speed, each once and all together.
            lines = text.split("\n")
            before = [*dict.fromkeys(line for line in lines if REDACTED in line)]
            joined = "\n".join(before)
            after = without(joined, self._spans(joined))
            if after == joined:
                break
            clean = dict(zip(before, after.split("\n"), strict=True))
            text = "\n".join(clean.get(line, line) for line in lines)
        return text

    def data(self, data: bytes, block: KeyBlock | None = None) -> bytes:
        """Return bytes, in any encoding that extends ASCII, with every secret replaced."""
        text = data.decode("latin-1")
        clean = self.text(text, block)
        return data if clean == text else clean.encode("latin-1")

    def pieces(self, pieces: Sequence[bytes]) -> list[bytes]:
        """Return pieces of a text with every secret replaced, also if it spans several pieces.

        The number of pieces stays; the mark is in the piece in which the secret begins.
        """
        text = b"".join(pieces).decode("latin-1")
        spans = merged(self._spans(text, KeyBlock()))
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

    def json(self, value: Any, block: KeyBlock | None = None) -> Any:
        """Return a JSON value with every secret in it replaced; other values become text.

        Texts in a list may be lines of one text: `block` tracks a private key over them.
        """
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, dict):
            return self._table(value)
        if isinstance(value, list | tuple):
            block = KeyBlock()
            return type(value)(self.json(member, block) for member in value)
        return self.text(str(value), block)

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return headers of a request or a response without keys and cookies."""
        return {
            self.text(name): REDACTED if names_a_secret(name) else self.text(value)
            for name, value in headers.items()
        }

    def failure(self, value: Any, block: KeyBlock | None = None) -> Any:
        """Return a failure's texts, or tables of texts, without quotations of prompts."""
        if isinstance(value, str):
            return self.prompts.prose(self.text(value, block))
        if isinstance(value, dict):
            return {name: self.failure(member) for name, member in value.items()}
        if isinstance(value, list | tuple):
            block = KeyBlock()
            return type(value)(self.failure(member, block) for member in value)
        return self.json(value)

    def evidence(self, value: Any) -> Any:
        """Return a JSON value without its prompts, answers and secrets."""
        return self.prompts.json(self.json(value))

    def prompt(self, value: Any) -> Any:
        """Return a prompt, or a JSON value of prompts, with every secret in it replaced.

        Prompts are sent again and compared: known secrets are replaced, and issuers' shapes outside
        images, but not values that only follow a secret's name.
        """
        if isinstance(value, dict):
            return {name: self.prompt(member) for name, member in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.prompt(member) for member in value)
        if isinstance(value, bytes):
            return self._prompt(value.decode("latin-1")).encode("latin-1")
        return self._prompt(value) if isinstance(value, str) else value

    def body(self, data: bytes) -> bytes:
        """Return a request's body; the same bytes if it has no secrets.

        In a JSON body, fields with credentials are replaced. In its texts, which are prompts and
        are sent again, known secrets are replaced, and shapes that are searched for in prompts.
        """
        if not data.lstrip().startswith((b"{", b"[")):
            return self.prompts.body(self.data(data))
        text = data.decode("latin-1")
        clean = without(text, pairs.fields(text))
        clean = self._prompt(clean)
        return self.prompts.body(data if clean == text else clean.encode("latin-1"))

    def response(self, pieces: Sequence[bytes]) -> list[bytes]:
        """Return a response; the number of its pieces stays."""
        return self.prompts.pieces(self.pieces(pieces))

    def _prompt(self, text: str) -> str:
        for _ in range(TIMES):
            clean = without(text, self._spans(text, KeyBlock(), prompt=True))
            if clean == text:
                break
            text = clean
        return text

    def _table(self, table: Mapping[Any, Any]) -> dict[str, Any]:
        clean = {
            self.text(str(name)): self._entry(str(name), member) for name, member in table.items()
        }
        if isinstance(value := table.get(_VALUE_FIELD), str):
            for field in _NAME_FIELDS:
                if isinstance(name := table.get(field), str) and pairs.is_secret(name, value):
                    clean[_VALUE_FIELD] = REDACTED
        return clean

    def _entry(self, name: str, value: Any, block: KeyBlock | None = None) -> Any:
        """Return a value of a table, redacted by its name there."""
        if isinstance(value, str):
            return REDACTED if pairs.is_secret(name, value) else self.text(value, block)
        if isinstance(value, list | tuple):
            block = KeyBlock()
            return type(value)(self._entry(name, member, block) for member in value)
        return self.json(value)

    def _spans(
        self, text: str, block: KeyBlock | None = None, *, prompt: bool = False
    ) -> Iterator[Span]:
        # A log repeats itself: checking each word once is enough for most rules.
        words = text if len(text) < MUCH else "\n".join({*text.split()})
        letters = {*words}
        for spelling in self._spellings:
            if spelling in words:
                yield from everywhere(spelling, text)
        for spelling in self._spaced:
            yield from everywhere(spelling, text)
        yield from _shapes(text, words, letters, prompt=prompt)
        if not prompt:
            if names := pairs.names_in(words):
                yield from pairs.spans(text, names)
            yield from library.spans(text, words, letters)
        if block is not None:
            yield from block.spans(text)


def _shapes(text: str, words: str, letters: set[str], *, prompt: bool) -> Iterator[Span]:
    # The base64 of an image contains every short text somewhere.
    images = [match.span() for match in _DATA_URL.finditer(text)] if prompt else []
    for shape in patterns.shapes():
        if (shape.prompts or not prompt) and shape.letters <= letters and shape.anchor in words:
            for begin, end in shape.spans(text):
                if not any(first <= begin < last for first, last in images):
                    yield begin, end


def of_process(environment: Mapping[str, str], arguments: Sequence[str] = ()) -> Redactor:
    """Return a redactor for the secrets in a process's environment and arguments."""
    redactor = Redactor()
    redactor.learn_environment(environment)
    redactor.learn_hub_token(environment)
    redactor.learn_arguments(arguments)
    return redactor
