"""Imports the request of a curl command line: parsed as a shell and curl would, never run."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents.importers import BODY_BYTES, heredoc, pasted, request

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_vllm_gates.client.exchange import Sent

# Options, grouped by how their value is used.
DATA = {"-d", "--data", "--data-ascii", "--data-raw", "--data-binary", "--json"}
METHOD, HEADER = {"-X", "--request"}, {"-H", "--header"}
IGNORED = {
    "-u", "--user", "-A", "--user-agent", "-b", "--cookie", "-e", "--referer", "-o", "--output",
    "-m", "--max-time", "--connect-timeout", "-x", "--proxy", "--retry", "--retry-delay", "-w",
    "--write-out", "--cacert", "--capath", "-E", "--cert", "--key", "--resolve", "--oauth2-bearer",
    "-c", "--cookie-jar", "-D", "--dump-header", "--retry-max-time", "--limit-rate", "--trace",
    "--trace-ascii", "--stderr", "--connect-to", "--interface", "--tls-max", "--ciphers",
}  # fmt: skip
FLAGS = {
    "-s", "-S", "-k", "-L", "-N", "-v", "-i", "-f", "-g", "-0", "-4", "-6", "-#", "-j", "-q",
    "--silent", "--show-error", "--insecure", "--location", "--no-buffer", "--verbose", "--include",
    "--fail", "--fail-with-body", "--globoff", "--compressed", "--http1.0", "--http1.1", "--http2",
    "--http2-prior-knowledge", "--http3", "--tcp-nodelay", "--no-keepalive", "--no-progress-meter",
    "--progress-bar", "--ipv4", "--ipv6", "--location-trusted", "--path-as-is", "--tlsv1.2",
    "--tlsv1.3", "--raw", "--disable", "--no-sessionid", "--no-alpn", "--retry-connrefused",
    "--retry-all-errors", "--anyauth", "--basic", "--tr-encoding", "--junk-session-cookies",
}  # fmt: skip
BEGIN = re.compile(
    r"^(?P<prompt>[ \t]*(?:[$#>][ \t]+)?)(?:\S*/)?curl(?:\.exe)?(?=\s)", re.MULTILINE
)
# A command that a browser copied for Windows: ^" quotes, and ^ continues a line.
OF_CMD = re.compile(r"\S+\s+(?:\^\"|[^\n']*\^[ \t]*\r?\n)")
ENDS = re.compile(r"[|;&<>()]+")
LAST, HALVES = 0x10FFFF, range(0xD800, 0xE000)
"""Unicode's last character, and the numbers of UTF-16 surrogates."""
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}
ESCAPED = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|(.))", re.DOTALL
)
# Marks text that a shell would have expanded; no request contains this character.
OPEN = "\ufdd0"
EXPANDED = re.compile(r"\$(?=[A-Za-z_{(0-9@*#?!$])|`")
# Within double quotes: the characters that a backslash escapes, and expansions.
EXPANSION = re.compile(r"\\([$`\"\\\n])|" + EXPANDED.pattern)
# Within a here-document a quote is like any other character.
IN_A_DOCUMENT = re.compile(r"\\([$`\\\n])|" + EXPANDED.pattern)


def claims(text: str) -> bool:
    """Return whether a text is a curl command line."""
    return BEGIN.search(text) is not None


def requests(text: str, folder: Path) -> list[Sent]:
    """Return the one request of a command line; a file it names is read if it is in `folder`."""
    return read(text, folder)[0]


def read(text: str, folder: Path) -> tuple[list[Sent], list[str]]:
    """Return the request of a command line, with the answer below it, and what was left out.

    The command ends at its first line break that is neither quoted nor escaped, or with its
    here-document.
    """
    begin = BEGIN.search(text)
    if begin is None:
        raise UserError("this is not a curl command line: no line of it begins with curl")
    command = text[begin.end("prompt") :]
    if OF_CMD.match(command):
        raise UserError("this command was copied for cmd.exe: copy it as cURL (bash)")
    end = _end_of_command(command)
    command, below, standard_input = _standard_input(command[:end], command[end:])
    skipped = pasted.lines_of(text[: begin.start()])
    notes = [f"{len(skipped)} lines before the command were skipped"] if skipped[1:] else []
    notes += ["1 line before the command was skipped"] if len(skipped) == 1 else []
    sent = _request(command, folder, standard_input, below=bool(below.strip()))
    answer = pasted.answer(below)
    if answer.status is not None:
        pieces = ((0.0, answer.data),)
        sent = replace(sent, status=answer.status, pieces=pieces)
    return [sent], [*notes, answer.note] if answer.note else notes


def _standard_input(command: str, below: str) -> tuple[str, str, bytes | None]:
    """Return a command without its here-document, the text below both, and the document."""
    places = [at for at, _ in _parts(command) if command.startswith("<<", at)]
    if not places:
        return command, below, None
    document = heredoc.read(command, places[0], below)
    if any(at >= document.end for at in places):
        raise UserError("the command has two here-documents: keep only the one that it sends")
    text = IN_A_DOCUMENT.sub(_marked, document.text) if document.expands else document.text
    rest = f"{command[: places[0]]} {command[document.end :]}"
    return rest, document.below, text.encode("utf-8", "surrogateescape")


def _request(command: str, folder: Path, standard_input: bytes | None, *, below: bool) -> Sent:
    words = _words(command)
    method, url, data = "POST", "", b""
    headers: dict[str, str] = {}
    for option, value in _options(words[1:]):
        if option == "" and url:
            raise UserError(f"the command has two URLs, {url!r} and {value!r}: give one")
        if option == "":
            url = value
        elif option in DATA:
            data += (b"" if option == "--json" or not data else b"&") + _data(
                option, value, folder, standard_input
            )
        elif option in METHOD:
            method = value
        elif option in HEADER:
            name, _, content = value.partition(":")
            headers[name.strip().lower()] = content.strip()
    _check(url, method, data, below=below)
    headers["content-type"] = "application/json"
    return request(url, data, method=method, headers=headers)


def _check(url: str, method: str, data: bytes, *, below: bool) -> None:
    if not url:
        raise UserError("the command has no URL")
    if OPEN in url + method or OPEN.encode() in data:
        raise UserError(
            "the shell would expand a $variable or $(command) of this command, but nothing is "
            "executed here: replace it with its value and paste the command again"
        )
    if not data:
        raise UserError(
            "the command sends no data (-d, --json): it has no request to store"
            + ("; it ends at its first line break without a backslash" if below else "")
        )


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield options with their values, and ("", URL)."""
    rest_of_words = iter(words)

    def value_of(option: str) -> str:
        value = next(rest_of_words, None)
        if value is None:
            raise UserError(f"curl's {option} has no value: is the command cut off?")
        return value

    for word in rest_of_words:
        if word == "--url":
            yield "", value_of(word)
        elif not word.startswith("-") or word == "-":
            yield "", word
        elif word.startswith("--"):
            _known(word)
            if word not in FLAGS:
                yield word, value_of(word)
        else:
            letters = word[1:]
            while letters:
                option, letters = f"-{letters[0]}", letters[1:]
                _known(option)
                if option not in FLAGS:
                    yield option, letters or value_of(option)
                    break


def _known(option: str) -> None:
    if option not in FLAGS | DATA | IGNORED | METHOD | HEADER:
        raise UserError(
            f"curl's {option} is not known here, or sends no JSON: remove it, or write the body "
            "to a file and run `vllm-gates capture --request FILE`"
        )


def _data(option: str, value: str, folder: Path, standard_input: bytes | None) -> bytes:
    if option == "--data-raw" or not value.startswith("@"):
        return value.encode("utf-8", "surrogateescape")
    data = _read(value[1:], folder) if value != "@-" else standard_input
    if data is None:
        raise UserError(
            "the command reads its data from standard input: only a here-document "
            "(-d @- <<'EOF') and files are read; use one of them"
        )
    plain = option in ("-d", "--data", "--data-ascii")
    return data.replace(b"\r", b"").replace(b"\n", b"").replace(b"\0", b"") if plain else data


def _read(name: str, folder: Path) -> bytes:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise UserError(
            f"the command reads its data from {name!r}: only files in {folder} are read, because "
            "an incident is passed on; copy the file there"
        )
    return bounded_read.data(path, BODY_BYTES)


def _words(text: str) -> list[str]:
    """Split a command as a shell does, up to where the command ends."""
    text = text.replace("\\\r\n", "\\\n").replace("\\\n", " ")
    lexer = shlex.shlex(_quoted(text.strip()), posix=True, punctuation_chars="|;<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        for word in lexer:
            if ENDS.fullmatch(word):
                break
            words.append(word)
    except ValueError as error:
        raise UserError(
            f"the command is cut off or quoted wrongly: {error}; paste all of it"
        ) from error
    return words


def _quoted(text: str) -> str:
    """Return a command with $'…' in plain quotes, and with a mark before each expansion."""
    return "".join(_part_quoted(text, at, end) for at, end in _parts(text))


def _part_quoted(text: str, at: int, end: int) -> str:
    part = text[at:end]
    if part.startswith("$'"):
        return shlex.quote(ESCAPED.sub(_unescaped, part[2:-1]))
    if part.startswith('"'):
        closed = len(part) > 1 and part.endswith('"')
        return shlex.quote(EXPANSION.sub(_marked, part[1:-1])) if closed else part
    return OPEN + part if EXPANDED.match(text, at) else part


def _parts(text: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each part of a command: an escape, a quotation or one character."""
    at = 0
    while at < len(text):
        character = text[at]
        if character == "\\":
            end = at + (3 if text.startswith("\r\n", at + 1) else 2)
        elif character in "'\"":
            end = _end(text, at + 1, character, escapes=character == '"')
        elif text.startswith("$'", at):
            end = _end(text, at + 2, "'", escapes=True)
        else:
            end = at + 1
        yield at, end
        at = end


def _end_of_command(text: str) -> int:
    """Return where a command ends: at its first line break that is neither quoted nor escaped."""
    return next((at for at, _ in _parts(text) if text[at] == "\n"), len(text))


def _end(text: str, at: int, quote: str, *, escapes: bool) -> int:
    """Return where a quotation ends; the text's end if it is not closed."""
    while at < len(text) and text[at] != quote:
        at += 2 if escapes and text[at] == "\\" else 1
    return min(at + 1, len(text))


def _marked(match: re.Match[str]) -> str:
    return match[1].strip("\n") if match[1] else OPEN + match[0]


def _unescaped(match: re.Match[str]) -> str:
    hexadecimal = match[1] or match[2] or match[3]
    if hexadecimal or match[4]:
        code = int(hexadecimal, 16) if hexadecimal else int(match[4], 8)
        return chr(code) if code <= LAST and code not in HALVES else "\N{REPLACEMENT CHARACTER}"
    return ESCAPES.get(match[5], match[5])
