"""Wrong and rare requests, read from `robustness/<topic>.toml`, and the reactions to them."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_vllm_gates.client.completion import Completion

SHIPPED = data.FOLDER / "robustness"
CONTEXT = "context"
STEPS = "steps"
STEPS_TOKENS = 20_000
"""More than the default of vLLM's `max_num_batched_tokens` on any GPU."""
BLOCK_TIMES = 10_000
"""Repetitions that are made at once."""
MODEL = "${model}"

# A valid request; a case merges its own keys into it.
PLAIN: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Hello!"}],
    "max_tokens": 1,
    "temperature": 0,
}


class Repeat(toml.Record):
    """A text or an array many times over, for values that are too long for a file."""

    repeat: str | list[Any]
    times: int | Literal["context", "steps"]
    """The number of repetitions. "context": the tokens of the server's context; "steps": enough
    that a prompt of this length is read in several steps, within the context."""

    def count(self, context: int) -> int:
        """Return the number of repetitions; `context` is in tokens."""
        if self.times == CONTEXT:
            return context
        if self.times == STEPS:
            return min(STEPS_TOKENS, context - context // 4)
        return int(self.times)

    def made(self, context: int) -> str | list[Any]:
        """Return the long value."""
        return self.repeat * self.count(context)


class WrongRequest(toml.Record):
    """One request: how it differs from a plain one, and the allowed reactions of the server."""

    name: str
    expect: Literal["refused", "either", "answered"] = "refused"
    """Whether the server may answer, too, if OpenAI's API or vLLM's documentation allows it.
    "answered": the request is valid, and must be answered."""
    names: tuple[str, ...] = ()
    """Words of which a refusal's message must contain one, ignoring case; empty: any message."""
    method: str = "POST"
    path: str = "/chat/completions"
    """Below the API's own path, `/v1`."""
    content_type: str = "application/json"
    """Empty: no content type is sent."""
    body: dict[str, Any] = Field(default_factory=dict)
    """Merged into the plain request; a table of `repeat` and `times` is replaced by its result."""
    without: tuple[str, ...] = ()
    """Keys of the plain request that are left out."""
    raw: tuple[str | Repeat, ...] | None = None
    """Sent instead of a body: these texts one after the other; `${model}` is the model's name."""
    encoding: Literal["utf-8", "latin-1"] = "utf-8"

    @model_validator(mode="after")
    def _raw_or_body(self) -> WrongRequest:
        if self.raw is not None and (self.body or self.without):
            raise ValueError("a case has raw, or it has body and without; not both")
        return self

    def named(self, model: str) -> str:
        """Return the model that the request names, if it is sent to this one; empty without any."""
        if self.raw is not None or "model" in self.without:
            return ""
        return str(self.body.get("model", model) or "")

    def data(self, model: str, context: int, more: Mapping[str, Any] | None = None) -> bytes:
        """Return the bytes to send. `context` is in tokens; `more` is added to a JSON request."""
        if self.raw is not None:
            parts = [
                part.replace(MODEL, model) if isinstance(part, str) else part.made(context)
                for part in self.raw
            ]
            return "".join(map(str, parts)).encode(self.encoding)
        plain = {"model": model, **PLAIN, **(more or {})}
        remaining = {key: value for key, value in plain.items() if key not in self.without}
        return _json(remaining, self.body, context)


class _CaseFile(toml.Record):
    cases: tuple[WrongRequest, ...] = Field(min_length=1)


def load_all(project: Path) -> tuple[WrongRequest, ...]:
    """Read every case; a project's own `robustness/*.toml` add to the shipped, or replace a file.

    Raises `UserError` for a fault in a file, and for a name that two cases have.
    """
    files = {
        path.stem: path
        for folder in (SHIPPED, project / "robustness")
        for path in sorted(folder.glob("*.toml"))
    }
    paths: dict[str, Path] = {}
    requests: list[WrongRequest] = []
    for _, path in sorted(files.items()):
        for case in toml.load(path, _CaseFile).cases:
            if case.name in paths:
                raise UserError(f"{path}: the case {case.name!r} is also in {paths[case.name]}")
            paths[case.name] = path
            requests.append(case)
    return tuple(requests)


def _json(plain: Mapping[str, Any], body: Mapping[str, Any], context: int) -> bytes:
    """Return a body, laid over a plain one, with every repetition made.

    A long text is joined from references to one short block: only the result has its size.
    """
    mark = uuid.uuid4().hex
    texts: list[Repeat] = []

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(element) for element in value]
        if not isinstance(value, dict):
            return value
        if set(value) != set(Repeat.model_fields):
            return {key: filled(element) for key, element in value.items()}
        repeat = Repeat.model_validate(value)
        if not isinstance(repeat.repeat, str):
            return repeat.made(context)
        texts.append(repeat)
        return f"{mark} {len(texts) - 1} "

    data = json.dumps({**plain, **filled(body)}).encode()
    blocks: list[bytes] = []
    for place, piece in enumerate(re.split(rf"{mark} (\d+) ".encode(), data)):
        if place % 2:
            repeat = texts[int(piece)]
            escaped = json.dumps(repeat.repeat)[1:-1].encode()
            whole, rest = divmod(repeat.count(context), BLOCK_TIMES)
            blocks += [escaped * BLOCK_TIMES] * whole + [escaped * rest]
        else:
            blocks.append(piece)
    return b"".join(blocks)


@dataclass(frozen=True)
class Reaction:
    """The server's reaction to one request."""

    case: WrongRequest
    model: str
    """The model that was named; empty without one. The body may have megabytes: it is not kept."""
    status: int | None
    """None without an answer."""
    message: str | None
    """The error's message as a client reads it; None without one."""
    completion: bool
    """Whether the body is a completion."""
    text: str
    """The beginning of the body, or how the connection failed."""
    seconds: float


@dataclass(frozen=True)
class Checkup:
    """Whether the server still answered, after these wrong requests."""

    after: tuple[str, ...]
    completion: Completion


@dataclass(frozen=True)
class RobustnessResult:
    """The reactions of one server, and how it answered in between."""

    healthy: Completion
    """The canary's answer before the first case."""
    reactions: tuple[Reaction, ...]
    checkups: tuple[Checkup, ...]
    not_asked: tuple[str, ...]
    """The cases that were left out because the server no longer answered."""
