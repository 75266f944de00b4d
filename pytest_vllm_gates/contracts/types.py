"""The plan of the contracts gate, read from `contracts.toml`, and what it observes of a server."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.robustness.types import WrongRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = data.FOLDER / "contracts.toml"
NAME = r"^[^:,]+$"
"""In a golden a name is followed by a colon or a comma."""


class ContractRequest(toml.Record):
    """One request that is answered: a conversation of that name, a body, or both."""

    name: str = Field(pattern=NAME)
    method: str = "POST"
    path: str = "/v1/chat/completions"
    conversation: str | None = None
    body: dict[str, Any] = Field(default_factory=dict)
    """Changes to the conversation's body."""


class Mistake(WrongRequest):
    """One request that is refused."""

    name: str = Field(pattern=NAME)
    key: Literal["right", "wrong", "none"] = "right"
    """The API key of the request; a server without one gets only requests with the right key."""


class HttpRequest(toml.Record):
    """One request that pins the protocol, whether it is answered or refused.

    A POST requests one token, with the changes of `body`. In a header `${key}` is the API key and
    `${basic}` the key in the form of HTTP's basic authentication.
    """

    name: str = Field(pattern=NAME)
    method: str = "POST"
    path: str = "/v1/chat/completions"
    headers: dict[str, str] = Field(default_factory=dict)
    body: dict[str, Any] = Field(default_factory=dict)
    pinned: tuple[str, ...] = ()
    """Names of the reply's headers that are pinned, in lower case."""
    compressed: bool = False
    """Whether the body is sent compressed by gzip."""
    needs_key: bool = False
    """Whether the key is only in `headers`; not sent to a server without a key."""


class ContractPlan(toml.Record):
    """The file."""

    max_tokens: int = Field(gt=0)
    routes: tuple[str, ...]
    """`METHOD /path` each."""
    constants: frozenset[str]
    """Keys whose values are pinned if they are a plain word or a number."""
    maps: frozenset[str]
    """Paths of objects whose keys are data and not names of fields."""
    nullable: frozenset[str]
    """Keys whose values may be null now and then, but not always."""
    unpinned: tuple[str, ...]
    """Regular expressions of metrics and fields that are never pinned."""

    @property
    def left_out(self) -> re.Pattern[str]:
        """A pattern that matches the names that are never pinned."""
        return re.compile("|".join(self.unpinned) or "(?!)")

    answers: tuple[ContractRequest, ...]
    mistakes: tuple[Mistake, ...]
    http: tuple[HttpRequest, ...]


@dataclass(frozen=True)
class ContractReply:
    """The reply to one request."""

    name: str
    status: int | None
    """None without a reply."""
    kind: str = ""
    """The content type without its parameters."""
    bodies: tuple[Any, ...] | None = None
    """The JSON of the body, or of every event of a stream; None for invalid JSON."""
    text: str = ""
    """The beginning of the body, or the reason for its absence."""
    request: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class HttpReply:
    """The reply to one request that pins the protocol."""

    reply: ContractReply
    sent: Mapping[str, str] = field(default_factory=dict)
    """The headers of the request."""
    pinned: tuple[str, ...] = ()
    """Names of the headers that are pinned."""
    received: Mapping[str, str] = field(default_factory=dict)
    """The headers of the reply, by their names in lower case."""
    reused: bool | None = None
    """Whether the connection accepted a second request, None if that was not tried."""


@dataclass(frozen=True)
class Metric:
    """One family of metrics."""

    type: str
    labels: tuple[str, ...] | None
    """Names of its labels, `le` and `quantile` aside; None while it has no sample."""


@dataclass(frozen=True)
class Observed:
    """All observations of one server."""

    routes: Mapping[str, frozenset[str]]
    """Methods by path."""
    listed: bool
    """Whether the server listed its routes; if not, only the routes of the plan are known."""
    metrics: Mapping[str, Metric] | None
    """None if the server exposes none."""
    answers: tuple[ContractReply, ...]
    refusals: tuple[ContractReply, ...]
    model: str
    """The model's name in the requests, which differs at every boot."""
    http: tuple[HttpReply, ...] = ()
    not_asked: Mapping[str, str] = field(default_factory=dict)
    """Why a request was not sent, by its name."""
    requests: int = 0
    seconds: float = 0.0


def load() -> ContractPlan:
    """Read the shipped file."""
    return toml.load(FILE, ContractPlan)
