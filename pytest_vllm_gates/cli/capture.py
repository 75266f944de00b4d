"""`vllm-gates capture`: sends one request unchanged, and writes an incident with its answer."""

from __future__ import annotations

import datetime
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_vllm_gates import __version__
from pytest_vllm_gates.catalog import family as families, project as projects
from pytest_vllm_gates.checkpoints import resolve as checkpoints_resolve
from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents import (
    captured_notes,
    expectation,
    parts as incidents_parts,
    write as incidents_write,
)
from pytest_vllm_gates.incidents.expectation import broken
from pytest_vllm_gates.incidents.importers import (
    CHAT,
    COMPLETIONS,
    pasted,
    sources,
)
from pytest_vllm_gates.incidents.parts import body_of, seeds
from pytest_vllm_gates.incidents.replay import resend
from pytest_vllm_gates.incidents.served_family import family_named
from pytest_vllm_gates.incidents.types import (
    CAPTURED,
    METRICS_AFTER,
    METRICS_BEFORE,
    Incident,
    RecordedFinding,
    ServedCheckpoint,
    ServedLane,
)
from pytest_vllm_gates.redaction import redactor as redaction_redactor
from pytest_vllm_gates.redaction.prompts import HASH, KEEP, MODES, Prompts
from pytest_vllm_gates.report.incidents import counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.redaction.redactor import Redactor

TEST = "test_is_answered_as_expected"
FOLDER = "incidents"


def declare_incident_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that every incident has."""
    parser.add_argument(
        "--model", metavar="FAMILY", help="the family; default: found from the model's name"
    )
    parser.add_argument(
        "--expect", action="append", default=[], metavar="WORDS",
        help=f"an expectation of every answer (may be repeated): "
        f"{'; '.join(expectation.FORMS)}. Default: {'; '.join(expectation.DEFAULT)}",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path(FOLDER), metavar="DIR", help=FOLDER)
    parser.add_argument(
        "--redact-prompts", choices=MODES, default=KEEP,
        help="how to treat prompts and answers; only kept ones can be sent again",
    )  # fmt: skip


def declare_file_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the requests of a file."""
    parser.add_argument(
        "--kind", choices=tuple(sources.KINDS), help="the format of FILE; default: detected"
    )
    parser.add_argument(
        "--number", type=int, metavar="N", help="only the N-th request of FILE; default: all"
    )


class WrittenIncident(NamedTuple):
    """An incident that was written."""

    path: Path
    wrong: list[str]
    """The expectations that are not met."""
    notes: list[str]


def write(
    options: argparse.Namespace,
    sends: Sequence[Sent],
    lane: ServedLane,
    checkpoint: ServedCheckpoint | None = None,
    redactor: Redactor | None = None,
    **more: Any,
) -> WrittenIncident:
    """Write an incident.

    `more` are fields of the incident, and its `files`.
    """
    family, model = family_of(options.model, sends)
    expectations = options.expect or _default(sends)
    expected = expectation.parse_all(expectations)
    named_sends = [
        sent if sent.name else _named(sent, number) for number, sent in enumerate(sends, 1)
    ]
    findings = tuple(
        RecordedFinding(case=sent.name, says=message)
        for sent in named_sends
        if sent.status is not None or sent.error
        for message in broken(expected, sent)
    )
    files: Mapping[str, bytes] = more.pop("files", {})
    incident = Incident(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        tool={"name": "pytest-vllm-gates", "version": __version__},
        family=family.name,
        model=model,
        checkpoint=checkpoint
        or ServedCheckpoint(name=model or "unknown", source=model, revision=None),
        lane=lane,
        gate=CAPTURED,
        test=f"{TEST}[{family.name}]",
        case=findings[0].case if findings else None,
        says=findings[0].says if findings else f"expected: {'; '.join(expectations)}",
        findings=findings,
        seeds=seeds(named_sends),
        # It is typed next to the folder, wherever that was moved.
        command="pytest --repro {name}"
        + (f" --base-url {shlex.quote(lane.base_url)}" if lane.base_url else ""),
        **more,
    )
    used_redactor = redactor or redaction_redactor.of_process(os.environ)
    used_redactor.prompts = _prompts(options.redact_prompts)
    clean = incidents_write.cleaned(
        incident,
        named_sends,
        {**files, expectation.FILE: ("\n".join(expectations) + "\n").encode()},
        used_redactor,
    )
    name = incidents_write.name_of(incident.created, family.name, CAPTURED, options.slug)
    kept = options.redact_prompts == KEEP
    return WrittenIncident(
        incidents_write.write(options.out, name, *clean),
        [finding.says for finding in findings],
        list(captured_notes.replaced_secrets(clean[1])) if kept else [],
    )


def family_of(name: str | None, sends: Sequence[Sent]) -> tuple[Family, str]:
    """Return the family of the requests, and the model that they name.

    Raises `UserError` for a name that does not identify a family.
    """
    project = projects.current()
    model_names = [
        model_name
        for model_name in (body_of(sent).get("model") for sent in sends)
        if isinstance(model_name, str)
    ]
    model = next(filter(None, model_names), "")
    if name:
        return families.load(name, project), model
    return family_named(model, project), model


def _default(sends: Sequence[Sent]) -> tuple[str, ...]:
    """Return the default expectations."""
    chats = all(send.path.partition("?")[0] in (CHAT, COMPLETIONS) for send in sends)
    return expectation.DEFAULT if chats else expectation.WITHOUT_A_CHAT


def _named(sent: Sent, number: int) -> Sent:
    from dataclasses import replace  # noqa: PLC0415

    return replace(sent, name=str(number))


def _prompts(mode: str) -> Prompts:
    if mode != HASH:
        return Prompts(mode)
    from pytest_vllm_gates.redaction.prompt_key import prompt_key  # noqa: PLC0415 - only here

    return Prompts(mode, prompt_key())


TIMEOUT_S = 600.0
KEY_VARIABLE = "OPENAI_API_KEY"


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    summary = "send one request unchanged to a running server, and write an incident"
    parser = commands.add_parser("capture", help=summary, description=summary)
    parser.add_argument("--base-url", required=True, metavar="URL", help="http://host:8000/v1")
    parser.add_argument(
        "--request", required=True, metavar="FILE",
        help="the JSON body, an incident's folder, or what `vllm-gates incident from FILE` reads; "
        "- for the standard input",
    )  # fmt: skip
    declare_file_options(parser)
    parser.add_argument("--path", help="the path for the body; default: from the body, /v1/…")
    parser.add_argument(
        "--api-key-env", default=KEY_VARIABLE, metavar="NAME", help=f"default: {KEY_VARIABLE}"
    )
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, metavar="SECONDS")
    declare_incident_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the incident; 1 if the answer is not as expected."""
    imported = sources.of_anything(options.request, options.kind, options.number, options.path)
    options.expect = options.expect or list(imported.expectations)
    options.model = options.model or imported.family
    key = os.environ.get(options.api_key_env)
    redactor = redaction_redactor.of_process(os.environ, [options.base_url])
    redactor.learn(key)
    redactor.learn_text(imported.text)
    endpoint = Endpoint(_url(options.base_url), "", key)
    family, model = family_of(options.model, imported.sends)
    served = checkpoints_resolve.served(family, endpoint)
    before = incidents_parts.metrics(endpoint)
    answered = resend(endpoint, imported.sends, options.timeout)
    for sent in answered:
        if sent.status is None:
            print(f"no answer: {sent.error}", file=sys.stderr)
    metrics_texts = {METRICS_BEFORE: before, METRICS_AFTER: incidents_parts.metrics(endpoint)}
    version = http.version(endpoint) if any(sent.status for sent in answered) else None
    options.slug = model or "request"
    written = write(
        options,
        answered,
        ServedLane(
            name="base-url", title="a server that runs", form="base_url",
            base_url=endpoint.base_url, env={}, serve={}, overlay=(),
        ),
        ServedCheckpoint(name=served.name, source=served.source, revision=served.revision),
        redactor,
        files={name: text.encode() for name, text in metrics_texts.items() if text},
        versions={"vllm": version} if version else {},
    )  # fmt: skip
    for sent in answered:
        seconds = f", {sent.pieces[-1][0]:.3f} s" if sent.pieces else ""
        print(f"status {sent.status}, {counted(len(sent.pieces), 'piece')}{seconds}")
    for message in (*_notes(options.request, imported), *written.notes, *written.wrong):
        print(f"  {message}")
    path = shlex.quote(str(written.path))
    print(f"{written.path}\nsend it again: pytest --repro {path} --base-url {endpoint.base_url}")
    return int(bool(written.wrong))


def _notes(name: str, imported: sources.Imported) -> list[str]:
    """Return notes on a file's import; the new answer replaces an answer in the file."""
    notes = [note for note in imported.notes if not note.startswith(pasted.TAKEN)]
    if any(sent.status is not None for sent in imported.sends):
        notes.append(f"the answer in {name} is not kept: the incident has the new answer")
    return notes


def _url(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise UserError(f"--base-url: expected a URL like http://127.0.0.1:8000/v1, got {url!r}")
    return url.rstrip("/")
