"""Writes and reads the files of a report, from the verdict's document."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.errors import UnreadableError
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import WriteError
from pytest_vllm_gates.report import document as documents, markdown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


def publish(
    folder: Path | None,
    document: Mapping[str, Any],
    environ: Mapping[str, str],
    other: Mapping[str, Any] | None = None,
) -> list[str]:
    """Write verdict.json and report.html into `folder`, and a CI job's summary.

    `other` is the other lane's document, if there is one. Returns a message for each file: its
    place, or why it could not be written. The document is written first, so no later failure can
    lose it.
    """
    from pytest_vllm_gates.report.html import page  # noqa: PLC0415 - heavy

    messages: list[str] = []
    # In the form that others read: paths and other objects are text there.
    plain = json.loads(json.dumps(document, default=str))
    if folder is not None:
        verdict = _written(
            "verdict", folder / documents.NAME, lambda: documents.write(folder, document)
        )
        if verdict.problem:
            plain["notes"] = [*plain.get("notes", ()), verdict.message]
        report = _written("report", folder / page.NAME, lambda: page.write(folder, plain, other))
        same = report.problem and report.problem == verdict.problem
        both = [f"{verdict.message}\nnor was {page.NAME}"]
        messages += both if same else [report.message, verdict.message]
    if summary := markdown.append_step_summary(plain, environ):
        messages.append(summary)
    return messages


class Written(NamedTuple):
    """The result of writing a file: a message, and the problem if it could not be written."""

    message: str
    problem: str = ""


def _written(kind: str, path: Path, write: Callable[[], Path]) -> Written:
    try:
        return Written(f"{kind}: {write()}")
    except WriteError as error:
        # A user or a script would mistake it for this run's file.
        there = os.path.isfile(path)  # noqa: PTH113 - pathlib raises for a name that is too long
        older = f"\nthe existing {path.name} is from an earlier run" if there else ""
        problem = error.strerror or "not written"
        return Written(f"{kind}: {error}{older}", problem)
    except Exception as error:  # noqa: BLE001 - the verdict has to be printed nevertheless
        problem = f"{type(error).__name__}: {error}"
        return Written(
            f"{kind}: {path} could not be created: {problem}; please report this", problem
        )


def write_html(folder: Path, document: Mapping[str, Any]) -> Path:
    """Write report.html beside a verdict.json, with the other lane's document if there is one."""
    from pytest_vllm_gates.report.html import page  # noqa: PLC0415 - heavy

    return page.write(folder, document, other_lane(folder, document))


def add_bisection(folder: Path, section: Mapping[str, Any]) -> Path:
    """Add what a bisection found to the report in `folder`: verdict.json, then report.html.

    Returns the path of the page. Raises `UserError` if the folder has no report, and `WriteError`.
    """
    document = {**read(folder), "bisection": json.loads(json.dumps(section))}
    documents.write(folder, document)
    return write_html(folder, document)


def other_lane(folder: Path, document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the other lane's document; None if there is none, or if it cannot be read."""
    against = document.get("against")
    if not against:
        return None
    try:
        return read(folder / against["document"])
    except UserError:
        return None  # our document has a summary of it


def read(path: Path) -> dict[str, Any]:
    """Return a verdict's document, from a file or its folder.

    Raises `UserError` for any other file, and for another version.
    """
    import jsonschema  # noqa: PLC0415 - heavy

    file = path / documents.NAME if path.is_dir() else path
    try:
        document = bounded_read.json(file, unique=True)
    except UnreadableError as error:
        raise UserError(
            f"{error}\nname a report's folder or its "
            f"{documents.NAME}, as pytest --model NAME --gates-report FOLDER writes it"
        ) from error
    kind = document.get("format") if isinstance(document, dict) else None
    if kind != documents.FORMAT:
        raise UserError(
            f"{file}: its format is {kind!r}, not {documents.FORMAT!r}: name the "
            f"{documents.NAME} of a report"
        )
    if type(document.get("version")) is not int or document["version"] != documents.VERSION:
        raise UserError(
            f"{file}: it is a verdict of version {document.get('version')!r}, but this "
            f"pytest-vllm-gates reads version {documents.VERSION}: use the release that wrote it "
            f"({document.get('tool')})"
        )
    schema = json.loads(documents.SCHEMA.read_text(encoding="utf-8"))
    problem = next(jsonschema.Draft202012Validator(schema).iter_errors(document), None)
    if problem is not None:
        raise UserError(f"{file}: at {problem.json_path}: {problem.message[:300]}")
    return dict(document)
