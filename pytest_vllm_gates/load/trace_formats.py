"""The formats of traces: the columns or keys of each, and how a line is read.

Azure LLM inference traces of 2023 and 2024 (CSV): TIMESTAMP, ContextTokens, GeneratedTokens.
https://github.com/Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md and ...2024.md;
Patel et al., Splitwise, ISCA 2024, and Stojkovic et al., DynamoLLM, HPCA 2025.

BurstGPT (CSV): Timestamp in seconds, Model, Request tokens, Response tokens, Total tokens, Log
Type; later releases have Session ID and Elapsed time, too. An answer of 0 tokens is a failure.
https://github.com/HPMLL/BurstGPT; Wang et al., arXiv 2401.17644.

Mooncake (JSON lines): timestamp in milliseconds, input_length, output_length, and hash_ids, one for
every 512 tokens of the prompt begun. https://github.com/kvcache-ai/Mooncake, FAST25-release/traces;
Qin et al., FAST 2025.

OpenAI's batch files (JSON lines): custom_id, method, url, body; what vLLM's `run-batch` reads.
https://platform.openai.com/docs/guides/batch
"""

from __future__ import annotations

import csv
import json
import math
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_vllm_gates.bounded import syntax
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.load.trace import BLOCK_TOKENS, Arrival, BatchRequest, Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

EXCERPT_CHARS = 80
PATHS = ("/v1/chat/completions", "/v1/completions")
REPAIR = "correct the line, or take it out, and run again"
CUT_OFF = "is the file cut off? copy it again, or take the line out"


@dataclass(frozen=True)
class Line:
    """A line of a trace."""

    path: Path
    number: int
    text: str

    def error(self, actual: str, expected: str, step: str = REPAIR) -> UserError:
        """Return the error to raise for an unexpected line."""
        return UserError(f"{self.path}:{self.number}: found {actual}; expected {expected}\n{step}")

    @property
    def excerpt(self) -> str:
        """Its beginning, for messages."""
        line = self.text.strip()
        return repr(line if len(line) <= EXCERPT_CHARS else f"{line[:EXCERPT_CHARS]}...")


Values: TypeAlias = "Mapping[str, Any]"
Read: TypeAlias = "Callable[[Line, Values], Entry]"


@dataclass(frozen=True)
class Format:
    """One format of traces."""

    name: str
    needs: tuple[str, ...]
    """Columns of its table, or keys of its objects, by which it is recognised."""
    read: Read
    """Returns the request of a line, its time as the file counts it, in seconds."""
    table: bool = False
    """Whether it is a CSV file; otherwise each line is a JSON object."""
    numeric: bool = False
    """Whether the times of a table are numbers."""

    def sort_hint(self, path: Path) -> str:
        """Return how a trace of this format is put in order."""
        name = shlex.quote(str(path))
        if not self.table:
            return f"sort it: jq -s -c 'sort_by(.timestamp)[]' {name} > sorted.jsonl"
        keys = "-t, -g -k1,1" if self.numeric else "-t, -k1,1"
        return f"sort it: (head -n 1 {name}; tail -n +2 {name} | sort {keys}) > sorted.csv"


def detect_format(first: Line) -> Format:
    """Return the format of the trace that begins with this line."""
    objects = first.text.lstrip().startswith("{")
    names = set(_object(first) if objects else columns(first))
    known = [form for form in FORMATS if form.table != objects]
    nearest = max(known, key=lambda form: len(names.intersection(form.needs)))
    missing = [name for name in nearest.needs if name not in names]
    if len(missing) == len(nearest.needs):
        formats = "; ".join(f"{form.name}: {', '.join(form.needs)}" for form in FORMATS)
        raise first.error(
            first.excerpt, f"the first line of a trace ({formats})", "write it as one of these"
        )
    if missing:
        kind = "keys" if objects else "columns"
        raise first.error(
            f"no {', '.join(missing)}",
            f"the {kind} of the {nearest.name}: {', '.join(nearest.needs)}",
            f"name the {kind} as they are published",
        )
    return nearest


def line_reader(form: Format, first: Line) -> Callable[[Line], Entry]:
    """Return the function that reads a line of a trace that begins with `first`."""
    if not form.table:
        return lambda line: form.read(line, _keys(line, form))
    names = columns(first)

    def read(line: Line) -> Entry:
        values = columns(line)
        if len(values) != len(names):
            raise line.error(f"{len(values)} columns", f"{len(names)}: {', '.join(names)}", CUT_OFF)
        return form.read(line, dict(zip(names, values, strict=True)))

    return read


def columns(line: Line) -> list[str]:
    """Return the fields of a line of CSV."""
    try:
        return [field.strip() for field in next(csv.reader([line.text], strict=True), [])]
    except csv.Error as error:
        raise line.error(f"{line.excerpt} ({error})", "a line of comma-separated values") from error


def _object(line: Line) -> dict[str, Any]:
    """Return a line's JSON object."""
    try:
        value = syntax.json_value(line.text)
    except syntax.BadSyntaxError as error:
        if isinstance(reason := error.__cause__, json.JSONDecodeError):
            actual = f"{line.excerpt} ({reason.msg} at column {reason.colno})"
            raise line.error(actual, "a whole JSON object on one line", CUT_OFF) from error
        raise line.error(f"{line.excerpt} ({error})", "a JSON object that can be read") from error
    if not isinstance(value, dict):
        raise line.error(line.excerpt, "a JSON object")
    return value


def _keys(line: Line, form: Format) -> dict[str, Any]:
    values = _object(line)
    if missing := [name for name in form.needs if name not in values]:
        raise line.error(f"no {', '.join(missing)}", f"the keys {', '.join(form.needs)}")
    return values


def _azure(line: Line, values: Values) -> Arrival:
    timestamp = values["TIMESTAMP"]
    try:
        at = datetime.fromisoformat(timestamp)
    except ValueError as error:
        raise line.error(
            f"TIMESTAMP {timestamp!r}", "a time such as 2023-11-16 18:15:46.68"
        ) from error
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return Arrival(
        at.timestamp(),
        _count(line, "ContextTokens", values),
        _count(line, "GeneratedTokens", values),
    )


def _burstgpt(line: Line, values: Values) -> Arrival:
    return Arrival(
        _number(line, "Timestamp", values, "seconds"),
        _count(line, "Request tokens", values),
        _count(line, "Response tokens", values),
    )


def _mooncake(line: Line, values: Values) -> Arrival:
    tokens = _count(line, "input_length", values)
    blocks = values.get("hash_ids") or ()
    ids = isinstance(blocks, list) and all(type(block) is int for block in blocks)
    begun = math.ceil(tokens / BLOCK_TOKENS)
    if blocks and not (ids and len(blocks) == begun):
        raise line.error(
            f"{len(blocks)} hash_ids" if ids else "hash_ids that are not a list of integers",
            f"{begun}, one for every {BLOCK_TOKENS} of {tokens} tokens begun",
            "leave hash_ids out to replay times and lengths alone",
        )
    return Arrival(
        _number(line, "timestamp", values, "milliseconds") / 1000,
        tokens,
        _count(line, "output_length", values),
        tuple(blocks),
    )


def _batch(line: Line, values: Values) -> BatchRequest:
    name, body = values["custom_id"], values["body"]
    if not (isinstance(name, str) and name):
        raise line.error(f"custom_id {name!r}", "a text")
    if values["method"] != "POST":
        raise line.error(f"method {values['method']!r}", "'POST'")
    if values["url"] not in PATHS:
        raise line.error(f"url {values['url']!r}", f"{' or '.join(PATHS)}: what is generated")
    if not isinstance(body, dict):
        raise line.error(f"a body that is {type(body).__name__}", "the request as a JSON object")
    prompts = body.get("prompt")
    several = isinstance(prompts, list) and any(
        isinstance(prompt, str | list) for prompt in prompts
    )
    if several or body.get("n") not in (None, 1):
        raise line.error(
            "a request for several answers",
            "one prompt and n = 1: tokens of several answers in one stream cannot be separated",
        )
    return BatchRequest(name, values["url"], body)


def _number(line: Line, name: str, values: Values, unit: str) -> float:
    value = values[name]
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise line.error(f"{name} {value!r}", f"a number of {unit}")
    return number


def _count(line: Line, name: str, values: Values) -> int:
    number = _number(line, name, values, "tokens")
    if number < 0 or not number.is_integer():
        raise line.error(f"{name} {values[name]!r}", "a whole number of tokens, 0 or more")
    return int(number)


FORMATS = (
    Format(
        "Azure LLM inference trace",
        ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        _azure,
        table=True,
    ),
    Format(
        "BurstGPT trace",
        ("Timestamp", "Request tokens", "Response tokens"),
        _burstgpt,
        table=True,
        numeric=True,
    ),
    Format("Mooncake trace", ("timestamp", "input_length", "output_length"), _mooncake),
    Format("OpenAI batch file", ("custom_id", "method", "url", "body"), _batch),
)
