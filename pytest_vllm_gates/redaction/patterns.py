"""The shapes of secrets: known issuers' keys, headers, arguments and signed URLs.

Every repeat is bounded, or at the end of its pattern, or over characters that the rest of the
pattern does not have: the time of a search is proportional to the text. No shape spans several
lines, so a log can be redacted line by line. Standard library only.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_vllm_gates import data

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.redaction.spans import Span


class Shape(NamedTuple):
    """A kind of secret: the last group of a match is the secret, or without groups the match."""

    anchor: str
    """A text that is in every match, for a quick search."""
    pattern: re.Pattern[str]
    letters: frozenset[str]
    """The letters of the anchor: checking that a text has them all is faster."""
    prompts: bool
    """Whether it is also searched for in the prompts of requests, which are sent again."""

    def spans(self, text: str) -> Iterator[Span]:
        """Yield the places of secrets with this shape."""
        for match in self.pattern.finditer(text):
            yield match.span(match.lastindex or 0)


_Q = r"""\\*["']"""
_QUOTED = rf"""(?:{_Q})?[ \t]*(?:[:=]|,(?=[ \t]*b?{_Q}))[ \t]*b?{_Q}([^"'\\\r\n\[\]]{{6,}})"""
_LISTED = rf"""(?:{_Q})?[ \t]*[:=][ \t]*\[(?!redacted\])([^\[\]\r\n]{{6,}})\]"""
_CODED = r"=(?=[A-Za-z_-]{0,80}\d)([A-Za-z0-9_+/=~%-]{6,}+)(?![\w.(\[])"
_BARE = r"""([^\s"'`,;)(\]}\[{<>$\\-][^\s"'`,;)\]}\[{<>\\]{5,})"""
_NEXT = rf"(?:=|[ \t]+|{_Q}[ \t]*[,:][ \t]*{_Q})"
_PROSE = (
    r"(?!(?:auth\w*|token|scheme|realm|format|header|key|value|argument|option|param\w*|variable|"
    r"needs|should|instead|before|without)s?\b)"
)
_HEADER = rf"""(?:{_Q})?[ \t]*(?:[:=]|,(?=[ \t]*b?{_Q}))[ \t]*b?(?:{_Q})?"""
_SCHEME = r"(?:[Bb]earer|[Bb]asic|[Tt]oken|[Dd]igest|[Aa]pi-?[Kk]ey)[ \t]+"
_IN_PROMPTS = (
    ("eyJ", r"(?<![\w-]eyJ)[\w-]{8,}+\.[\w-]{8,}+\.[\w-]{8,}"),
    ("://", r"([^/\s?#\"'<>\\]+)@"),
    ("earer", rf"(?<=[Bb]earer)(?:[ \t]+|%20){_PROSE}([A-Za-z0-9._~+/=%-]{{6,}})"),
    # A header in any spelling: as sent, in JSON, in Python's repr, in a shell's argument.
    (
        "uthorization",
        rf"{_HEADER}(?:{_SCHEME}([^\s\"'\\,\[\]]+)|(?!{_SCHEME})([^\s\"'\\,\[\]]{{6,}}))",
    ),
    ("ookie", rf"(?<=[Cc]ookie){_HEADER}(\w+=[^\"'\\\r\n\[\]]+)"),
    ("api-key", rf"{_NEXT}{_PROSE}{_BARE}"),
    ("api-key", rf"(?:(?<=x-api-key)|(?<=[\"']api-key)):[ \t]*{_BARE}"),
    ("Api-Key", rf"{_HEADER}{_BARE}"),
    ("api_key", rf"(?:{_QUOTED}|{_LISTED}|{_CODED})"),
    ("hf-token", rf"{_NEXT}{_PROSE}{_BARE}"),
    *((f"{kind}_token", _QUOTED) for kind in ("hf", "auth", "access")),
    ("assword", _QUOTED),
    ("secret_", rf"(?:access_)?key(?:{_QUOTED}|{_CODED})"),
    ("API_KEY", rf"={_BARE}"),
    *((f"{kind}_TOKEN", rf"={_BARE}") for kind in ("HF", "HUB", "AUTH", "API", "ACCESS")),
    ("PASSW", rf"(?:OR)?D={_BARE}"),
    ("SECRET", rf"(?:_[A-Z_]{{1,40}})?={_BARE}"),
    # Signed addresses, for example of a Hub's files.
    ("ignature=", r"([A-Za-z0-9%_~+/=-]{16,})"),
    (
        "oken=",
        r"(?:(?<=[?&]token=)|(?<=access_token=)|(?<=ecurity-Token=))"
        r"([A-Za-z0-9%_~+/=.-]{6,})",
    ),
    ("key=", r"(?<=[?&]key=)([A-Za-z0-9%_~+/=.-]{6,})"),
    # Azure: a shared access signature, the key of an account.
    ("sig=", r"(?<=[?&]sig=)([A-Za-z0-9%+/=_-]{16,})"),
    ("AccountKey=", r"([A-Za-z0-9+/=]{20,})"),
    ("SharedAccessKey=", r"([A-Za-z0-9+/=]{20,})"),
    # Telegram: a bot's number and its key.
    (":AA", r"(?<=\d{8}:AA)([A-Za-z0-9_-]{33})(?![\w-])"),
    # Webhooks of services on many hosts.
    (".webhook.office.com/", r"([^\s\"'<>\\]{10,})"),
    (".logic.azure.com", r"(?::443)?/([^\s\"'<>\\]{10,})"),
    ("chat.googleapis.com/v1/spaces/", r"([^\s\"'<>\\]{10,})"),
)
# Shapes that are not searched for in prompts; each match contains its anchor.
_ELSEWHERE = (
    # A header in capitals, and a scheme whose fields fill the line.
    ("uthorization", rf"{_HEADER}[Dd]igest[ \t]+([^\r\n\\]{{6,}})"),
    ("UTHORIZATION", rf"{_HEADER}(?i:{_SCHEME})?([^\s\"'\\,\[\]]{{6,}})"),
    # Azure: a shared access signature.
    ("sig=", r"(?<=[; ]sig=)([A-Za-z0-9%+/=_-]{16,})"),
    # HashiCorp: Vault before 1.10, Terraform Cloud.
    ("s.", r"(?<![\w.)\]-]s\.)(?=[A-Za-z]{0,23}\d)(?=[a-z0-9]{0,23}[A-Z])[A-Za-z0-9]{24}(?!\w)"),
    # Discord: the bot's number, a time and a signature.
    *(
        (first, rf"(?<![\w-]{first})[\w-]{{22,25}}\.[\w-]{{6}}\.[\w-]{{27,}}")
        for first in ("MT", "MD", "Mz", "Nj", "Nz", "OD", "OT", "Mj", "ND", "NT")
    ),
    # curl's user and password.
    ("curl ", r"(?:[^\r\n]{0,200}? )?(?:-u|--user)[ =]?[\"']?([^\s:\"']{1,80}:[^\s\"']{3,})"),
)
_WITH_HEAD = (
    # The issuer's mark is in the middle.
    ("7Q~", r"[\w~.-]{3}7Q~[\w~.-]{31,}"),
    ("8Q~", r"[\w~.-]{3}8Q~[\w~.-]{31,}"),
    (".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{40,}"),
)
# Letters and digits that may directly precede a secret: the end of an escaped newline, of a
# percent-encoded character, of JSON's \u003d, of a terminal's colour.
_ESCAPES = (r"\\[nrt]", "%[0-9A-Fa-f]{2}", r"\\u[0-9a-fA-F]{4}", r"\x1b\[\dm", r"\x1b\[\d\dm")


@cache
def shapes() -> tuple[Shape, ...]:
    """Return every shape; known issuers come first."""
    with (data.FOLDER / "secret_shapes.toml").open("rb") as file:
        table = tomllib.load(file)
    return (
        *(
            _shape(text, _listed(text, entry, table), prompts=entry.get("prompts", True))
            for entry in table["shapes"]
            for text in entry["begins"]
        ),
        *(_shape(text, re.escape(text) + rest, prompts=True) for text, rest in _IN_PROMPTS),
        *(_shape(text, re.escape(text) + rest, prompts=False) for text, rest in _ELSEWHERE),
        *(_shape(text, pattern, prompts=True) for text, pattern in _WITH_HEAD),
    )


def _shape(anchor: str, pattern: str, *, prompts: bool) -> Shape:
    return Shape(anchor, re.compile(pattern, re.ASCII), frozenset(anchor), prompts)


def _listed(text: str, entry: dict[str, Any], table: dict[str, Any]) -> str:
    begins = re.escape(text)
    characters = "0-9a-f" if entry.get("hex") else table["characters"][entry["then"]]
    digit = rf"(?=[{characters}]{{0,60}}?\d)" if entry.get("digit") else ""
    most = entry.get("most", "")
    # The literal comes first, because re finds it fast; the text before it is checked afterwards.
    if entry.get("inside"):
        return rf"{begins}([{characters}]{{{entry['least']},}}+)"
    before = "|".join([rf"(?<![A-Za-z0-9]{begins})", *(f"(?<={e}{begins})" for e in _ESCAPES)])
    end = "(?![A-Za-z0-9])" if most else ""
    return rf"{begins}(?:{before}){digit}[{characters}]{{{entry['least']},{most}}}+{end}"
