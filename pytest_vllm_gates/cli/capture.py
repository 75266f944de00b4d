"""Bundles of requests that no test of a run has sent."""

from __future__ import annotations

import datetime
import os
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import __version__
from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.drive import incident_redaction
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.facts import expectation
from pytest_vllm_gates.incidents import write as incidents_write
from pytest_vllm_gates.incidents.expectation import broken
from pytest_vllm_gates.incidents.importers import CHAT, COMPLETIONS
from pytest_vllm_gates.incidents.parts import body_of, seeds
from pytest_vllm_gates.incidents.types import CAPTURED, Checkpoint, Finding, Incident, Lane
from pytest_vllm_gates.redaction import redactor as redaction_redactor
from pytest_vllm_gates.redaction.prompts import HASH, KEEP, WAYS, Prompts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.incidents.types import Sent
    from pytest_vllm_gates.redaction.redactor import Redactor

TEST = "test_is_answered_as_expected"
FOLDER = "incidents"


def declare(parser: argparse.ArgumentParser) -> None:
    """Give a command the arguments that every bundle has."""
    parser.add_argument("--model", metavar="FAMILY", help="the family; found by the name if it can")
    parser.add_argument(
        "--expect", action="append", default=[], metavar="WORDS",
        help=f"what is expected of every answer (again for another): "
        f"{'; '.join(expectation.FORMS)}. Default: {'; '.join(expectation.DEFAULT)}",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path(FOLDER), metavar="DIR", help=FOLDER)
    parser.add_argument(
        "--redact-prompts", choices=WAYS, default=KEEP,
        help="what becomes of prompts and answers; only what is kept can be sent again",
    )  # fmt: skip


def write(
    options: argparse.Namespace,
    sends: Sequence[Sent],
    lane: Lane,
    checkpoint: Checkpoint | None = None,
    redactor: Redactor | None = None,
    **more: Any,
) -> tuple[Path, list[str]]:
    """Write a bundle; return its folder, and what is not as expected.

    `more` are fields of the incident, and its `files`.
    """
    family, model = family_of(options.model, sends)
    said = options.expect or _default(sends)
    expected = expectation.parse_all(said)
    named = [one if one.name else _named(one, number) for number, one in enumerate(sends, 1)]
    findings = tuple(
        Finding(case=one.name, says=told)
        for one in named
        if one.status is not None or one.error
        for told in broken(expected, one)
    )
    files: Mapping[str, bytes] = more.pop("files", {})
    incident = Incident(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        tool={"name": "pytest-vllm-gates", "version": __version__},
        family=family.name,
        model=model,
        checkpoint=checkpoint or Checkpoint(name=model or "unknown", source=model, revision=None),
        lane=lane,
        gate=CAPTURED,
        test=f"{TEST}[{family.name}]",
        case=findings[0].case if findings else None,
        says=findings[0].says if findings else f"expected: {'; '.join(said)}",
        findings=findings,
        seeds=seeds(named),
        command="pytest --repro {path}",
        **more,
    )
    hiding = redactor or redaction_redactor.of_process(os.environ)
    hiding.prompts = _prompts(options.redact_prompts)
    clean = incident_redaction.cleaned(
        incident, named, {**files, expectation.FILE: ("\n".join(said) + "\n").encode()}, hiding
    )
    name = incidents_write.name_of(incident.created, family.name, CAPTURED, options.slug)
    return incidents_write.write(options.out, name, *clean), [one.says for one in findings]


def family_of(wanted: str | None, sends: Sequence[Sent]) -> tuple[Family, str]:
    """Return the family the requests are for, and the model they name.

    Raises `UserError` where the name says nothing.
    """
    project = Path.cwd()
    names = [one for one in (body_of(sent).get("model") for sent in sends) if isinstance(one, str)]
    model = next(filter(None, names), "")
    if wanted:
        return families.load(wanted, project), model
    base = model.rstrip("/").rpartition("/")[2].lower()
    every = list(families.every(project))
    for one in every:
        hubs = [(entry.hub or "").lower() for entry in one.checkpoints]
        if base and (model.lower() in (one.name, *hubs) or base in (one.name, *hubs)):
            return one, model
    fitting = {one for family in every for one in family.recognise if one != "*"}
    best = max((one for one in fitting if fnmatch(base, one.lower())), key=len, default=None)
    found = next((one for one in every if best and best in one.recognise), None)
    if found is None:
        raise UserError(
            f"the model {model!r} tells no family: name it with --model\n"
            f"known: {', '.join(sorted(families.files(project)))}"
        )
    return found, model


def _default(sends: Sequence[Sent]) -> tuple[str, ...]:
    """Return what is expected where nothing was said."""
    chats = all(one.path.partition("?")[0] in (CHAT, COMPLETIONS) for one in sends)
    return expectation.DEFAULT if chats else expectation.WITHOUT_A_CHAT


def _named(sent: Sent, number: int) -> Sent:
    from dataclasses import replace  # noqa: PLC0415

    return replace(sent, name=str(number))


def _prompts(way: str) -> Prompts:
    if way != HASH:
        return Prompts(way)
    from pytest_vllm_gates.redaction.prompt_key import prompt_key  # noqa: PLC0415 - only here

    return Prompts(way, prompt_key())
