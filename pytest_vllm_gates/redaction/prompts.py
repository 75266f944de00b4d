"""Redaction of prompts and answers in everything that is written: keep, hash or drop them.

Standard library only: the guard of every server imports this.
"""

from __future__ import annotations

import json
import re
from typing import Any

KEEP, HASH, DROP = "keep", "hash", "drop"
MODES = (KEEP, HASH, DROP)
VARIABLE = "GATES_REDACT_PROMPTS"
"""Sets how a server's guard redacts the prompts that the server logs."""
DROPPED = "[dropped]"
HASH_CHARACTERS = 16

# Texts under these names belong to the interface or the run: no user or model wrote them.
KEPT = frozenset(
    (
        # of requests and responses
        "role", "type", "model", "object", "id", "index", "name", "finish_reason", "stop_reason",
        "tool_call_id", "tool_choice", "reasoning_effort", "system_fingerprint", "service_tier",
        "detail", "code", "param", "created", "owned_by", "cache_salt",
        # of evidence
        "preflight", "command", "log", "base_url", "served", "server_version", "version",
        "versions", "keys", "roles", "baseline", "against", "decision", "start_changes", "traffic",
        "arrivals", "calibration", "reasoning_parser", "not_applicable", "finish_reasons", "golden",
        "sha256", "changed", "cells", "stops", "figures", "known_defects", "known_defects_gone",
        "known_in", "outcome", "gate", "test", "family", "state", "kind", "url", "method", "path",
        "status",
    )
)  # fmt: skip
# Parts of messages that contain a picture, a video or a sound, or its URL.
_MEDIA = frozenset(("image_url", "video_url", "audio_url", "input_audio", "source"))
# Words of the interface that sentences about an answer quote.
_FIELDS = KEPT | frozenset(
    (
        "content", "reasoning", "reasoning_content", "messages", "prompt", "tools", "tool_calls",
        "function", "arguments", "stop", "length", "error", "usage", "delta", "choices", "message",
        "logprobs", "max_tokens", "temperature", "stream", "system", "user", "assistant", "tool",
        "token_ids", "prompt_token_ids",
    )
)  # fmt: skip
_TOKENS = re.compile(r"(?:^|_)token_ids$|^prompt_ends$")
_HARMLESS = re.compile(r"[\W\d_]*|/[\w./+-]+|https?://[\w.:/\[\]-]+")
_QUOTED = re.compile(
    r"""(?<!\w)(?P<mark>[bBrRuUfF]{0,2})(?P<quote>["'])"""
    r"""(?P<inside>(?:\\.|(?!(?P=quote)(?!\w))[^\\\n])*)(?P<end>(?P=quote)|\\?$)""",
    re.MULTILINE,
)
_DIFFERENCE = re.compile(r"^((?:E\s{1,7})?\s*[-+?] )(?=\S)(.+)$", re.MULTILINE)
_REQUEST = re.compile(r"(asked with: )(.+)$", re.MULTILINE)
_IDS = re.compile(r"(token_ids\W{1,4})\[[\d, ]+(?:\]|$)", re.MULTILINE)
_LOGGED = re.compile(rb"prompt: |JSON body: |output: |token_ids: \[|Request options: ")
_BODY = re.compile(r"((?:JSON body|Request options): )(.+)$", re.MULTILINE)


class Prompts:
    """Keeps, hashes or drops prompts and answers. Equal texts have equal hashes under one key."""

    def __init__(
        self, mode: str = KEEP, key: bytes = b"", shown: frozenset[str] = frozenset()
    ) -> None:
        """`key` goes into every hash: without it, nobody can guess texts.

        `shown` are texts that stay if a quotation contains only them: markers of chat templates.
        """
        self.mode = mode
        self._shown = shown
        self._key = key

    @property
    def kept(self) -> bool:
        """Whether texts are kept unchanged."""
        return self.mode == KEEP

    def text(self, text: str) -> str:
        """Return the replacement of a prompt, an answer or a part."""
        if self.kept or not text or _is_ours(text):
            return text
        if self.mode == DROP:
            return DROPPED
        import hashlib  # noqa: PLC0415 - a guard that hashes nothing starts without
        import hmac  # noqa: PLC0415

        digest = hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256)
        return f"[sha256:{digest.hexdigest()[:HASH_CHARACTERS]}, {len(text)} characters]"

    def json(self, value: Any, name: str = "") -> Any:
        """Return a request, a response or evidence without its texts; numbers and names stay."""
        if self.kept or name in KEPT:
            return value
        if _TOKENS.search(name) and isinstance(value, list | tuple | str):
            return self.text(json.dumps(value))
        if isinstance(value, dict):
            return {
                key: self.text(member)
                if name in _MEDIA and key == "url" and isinstance(member, str)
                else self.json(member, str(key))
                for key, member in value.items()
            }
        if isinstance(value, list | tuple):
            # A stop list's texts, or a prompt of tokens.
            if name == "prompt" and value and all(isinstance(member, int) for member in value):
                return self.text(json.dumps(value))
            return type(value)(self.json(member) for member in value)
        return self.text(value) if isinstance(value, str) else value

    def prose(self, text: str) -> str:
        """Return a failure's text without its quotations of prompts and answers.

        Quotations are in quotes, in a line of a diff, or in the request after "asked with".
        """
        if self.kept:
            return text
        text = _BODY.sub(self._tail, _REQUEST.sub(self._tail, text))
        text = _DIFFERENCE.sub(self._tail, text)
        text = _IDS.sub(lambda match: match[1] + self.text(match[0]), text)
        return _QUOTED.sub(self._quotation, text)

    def body(self, data: bytes) -> bytes:
        """Return a body of a request or a response, JSON or not, without its texts."""
        if self.kept or not data.strip():
            return data
        try:
            value = self.json(json.loads(data))
        except (ValueError, RecursionError):
            value = self.text(data.decode("utf-8", "replace"))
        return json.dumps(value, ensure_ascii=False).encode()

    def pieces(self, pieces: list[bytes]) -> list[bytes]:
        """Return a response in pieces without its texts; a line is in the piece with its end.

        Lines of a stream keep their order and their piece, so the timing can still be read.
        """
        if self.kept:
            return pieces
        if not any(piece.lstrip().startswith((b"data:", b"event:", b":")) for piece in pieces):
            body = b"".join(pieces)
            return [b""] * (len(pieces) - 1) + [self.body(body)] if pieces else []
        clean, unfinished = [], b""
        for piece in pieces:
            lines = (unfinished + piece).split(b"\n")
            unfinished = lines.pop()
            clean.append(b"".join(self._event(line) + b"\n" for line in lines))
        clean[-1] += self._event(unfinished)
        return clean

    def log(self, data: bytes) -> bytes:
        """Return lines of a server's log without the requests and answers in them."""
        if self.kept or not _LOGGED.search(data):
            return data
        return b"".join(
            self.prose(line.decode("latin-1")).encode("latin-1") if _LOGGED.search(line) else line
            for line in data.splitlines(keepends=True)
        )

    def _event(self, line: bytes) -> bytes:
        name, colon, data = line.partition(b":")
        if not data.strip() or name != b"data" or data.strip() == b"[DONE]":
            return line
        return name + colon + b" " + self.body(data)

    def _tail(self, match: re.Match[str]) -> str:
        return match[1] + self.text(match[2])

    def _quotation(self, match: re.Match[str]) -> str:
        inside = match["inside"]
        if inside in _FIELDS or inside in self._shown or _HARMLESS.fullmatch(inside):
            return match[0]
        return f"{match['mark']}{match['quote']}{self.text(inside)}{match['end']}"


def _is_ours(text: str) -> bool:
    return text == DROPPED or (text.startswith("[sha256:") and text.endswith(" characters]"))
