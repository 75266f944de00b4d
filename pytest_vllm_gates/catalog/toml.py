"""TOML tables checked strictly, and names found despite case, punctuation and near misses.

An unknown key is an error with file, line and the nearest key. Files of users are read by
`catalog.outside`; `load` and `layered` read those that ship.
"""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from pytest_vllm_gates.bounded import characters, limits, syntax
from pytest_vllm_gates.catalog import lines
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def fold(name: str) -> str:
    """Return the form in which names are compared: `Qwen-3.5` and `qwen35` are the same."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


GUESSED_CHARACTERS, GUESSED_NAMES = 100, 2000
"""No guess is made for longer names or among more names: that would take minutes."""


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return the known name a person most likely meant, or None when nothing is close.

    `likeness` is the least similarity, 1 for the same name.
    """
    by_fold = {fold(candidate): candidate for candidate in known}
    if len(name) > GUESSED_CHARACTERS or len(by_fold) > GUESSED_NAMES:
        return None
    close = difflib.get_close_matches(fold(name), by_fold, n=1, cutoff=likeness)
    return by_fold[close[0]] if close else None


def matches(pattern: str, name: str) -> bool:
    """Return whether `name` matches `pattern`, in which `*` matches any text.

    No other character is special: names of tests contain brackets.
    """
    first, *middle = pattern.split("*")
    if not middle:
        return name == pattern
    last = middle.pop()
    if len(name) < len(first) + len(last) or not name.startswith(first):
        return False
    at, end = len(first), len(name) - len(last)
    # The earliest place of each piece leaves most room for the next one.
    for piece in middle:
        at = name.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return name.endswith(last)


def choose(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the known name that `name` spells.

    Raises `UserError` with every known name and the nearest one for an unknown name.
    """
    known = sorted(known)
    for candidate in known:
        if fold(candidate) == fold(name):
            return candidate
    guess = nearest(name, known)
    hint = f"; did you mean {guess!r}?" if guess else ""
    raise UserError(f"unknown {kind} {name!r}{hint}\nknown: {', '.join(known) or 'none'}")


ABSENT = "none"


def _name(text: str) -> str:
    if text != text.strip():
        raise ValueError("a name has no space around it")
    if hidden := characters.hidden(text):
        raise ValueError(f"a name has no invisible characters; this one has {hidden}")
    return text


def sentence(text: str) -> str:
    """Return a text that may be printed unchanged; raises `ValueError` for any other."""
    if hidden := characters.hidden(text, sentence=True):
        raise ValueError(f"expected one line of visible characters; this text has {hidden}")
    return text


Name = Annotated[str, AfterValidator(_name)]
"""A name that people compare by eye."""
Sentence = Annotated[str, AfterValidator(sentence)]
"""A text that is printed unchanged."""


class Record(BaseModel):
    """A frozen table of a data file; every key it may have is a field."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


RecordT = TypeVar("RecordT", bound=Record)


def load(path: Path, record: type[RecordT], **extra_fields: object) -> RecordT:
    """Read a TOML file that ships into `record`; `extra_fields` are added to its own.

    Raises `UserError` naming the file, the line and, for an unknown key, the nearest known one.
    """
    text, table = read(path)
    return validated(path, text, {**table, **extra_fields}, record)


def read(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text and table of a shipped file; raises `UserError` for invalid TOML."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    return parsed(path, data, finite=False)


def parsed(path: Path, data: bytes, *, finite: bool = True) -> tuple[str, dict[str, Any]]:
    """Return the text and table of a TOML file's bytes; raises `UserError` for invalid TOML.

    `finite` refuses `nan` and `inf`.
    """
    try:
        text = syntax.decoded(data)
        return text, syntax.toml_table(text, finite=finite)
    except syntax.BadSyntaxError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from error


def validated(
    path: Path,
    text: str,
    table: Mapping[str, Any],
    record: type[RecordT],
    table_path: tuple[str, ...] = (),
) -> RecordT:
    """Return `table`, read from `text`, as a record; raises `UserError` as `load` does.

    `table_path` names a table of the file whose keys replaced keys of the top level; a faulty key
    is therefore searched there first.
    """
    try:
        # As JSON, because only in JSON does pydantic read an array as a tuple with strict types.
        return record.model_validate_json(json.dumps(table, default=str))
    except ValidationError as error:
        errors = error.errors(include_url=False)
        complaints = [
            _complain(path, text, record, line_error, table_path)
            for line_error in errors[: limits.COMPLAINTS]
        ]
        if more := len(errors) - len(complaints):
            complaints.append(f"{path}: and {more} more mistakes")
        raise UserError("\n".join(complaints)) from error
    except RecursionError as error:
        raise UserError(f"{path}: nested too deep") from error


def place(path: Path, text: str, location: tuple[str | int, ...]) -> str:
    """Return the place of the key at `location` in a file, read as `text`: `path:line`."""
    line = lines.line_of(text, location)
    return f"{path}:{line}" if line else str(path)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `changes` applied, table by table; an array is replaced whole.

    TOML has no null, so the text "none" removes a key of the base.
    """
    result = dict(base)
    for key, value in changes.items():
        below = result.get(key)
        if value == ABSENT and key in result:
            del result[key]
            continue
        if isinstance(value, dict) and isinstance(below, dict):
            result[key] = merged(below, value)
        else:
            result[key] = value
    return result


def layered(path: Path, record: type[RecordT], name: str, *changes: Mapping[str, Any]) -> RecordT:
    """Read the shipped file at `path` with changes applied in order.

    Raises `ValueError` naming the key, under the table's `name`, for invalid changes.
    """
    text, table = read(path)
    for change in changes:
        table = merged(table, change)
    if not any(changes):
        return validated(path, text, table, record)
    try:
        return record.model_validate_json(json.dumps(table, default=str))
    except ValidationError as error:
        errors = error.errors(include_url=False)[: limits.COMPLAINTS]
        complaints = [_complain_of_change(name, line_error) for line_error in errors]
        raise ValueError("; ".join(complaints)) from error


def _complain_of_change(table: str, error: Any) -> str:
    key = ".".join([table, *map(str, error["loc"])])
    message = error["msg"].removeprefix("Value error, ")
    return (
        f"{key}: {message}"
        if not error["loc"]
        else f"{key}: {message} ({limits.excerpt(error['input'])})"
    )


def _complain(
    path: Path, text: str, record: type[Record], error: Any, table_path: tuple[str, ...]
) -> str:
    location: tuple[str | int, ...] = error["loc"]
    name = ".".join(str(part) for part in location)
    if error["type"] == "missing":
        return f"{path}: the key {name!r} is missing"
    line = table_path and lines.line_of(text, (*table_path, *location))
    line = line or lines.line_of(text, location)
    position = f"{path}:{line}" if line else str(path)
    if error["type"] == "extra_forbidden":
        known_keys = _keys_beside(record, location)
        guess = nearest(str(location[-1]), known_keys)
        hint = (
            f"did you mean {guess!r}?" if guess else f"known here: {', '.join(sorted(known_keys))}"
        )
        return f"{position}: unknown key {limits.excerpt(name)}; {hint}"
    message = error["msg"].removeprefix("Value error, ")
    return f"{position}: {name or 'the file'}: {message} (found {limits.excerpt(error['input'])})"


def _keys_beside(record: type[Record], location: tuple[str | int, ...]) -> set[str]:
    """Return the keys allowed in the table that contains the last part of `location`."""
    fields: type[BaseModel] | None = record
    for part in location[:-1]:
        if isinstance(part, str) and fields is not None and part in fields.model_fields:
            fields = _table_in(fields.model_fields[part].annotation)
    return set(fields.model_fields) if fields else set()


def _table_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        record = _table_in(argument)
        if record:
            return record
    return None
