"""`vllm-gates capture`: send one request as it is, and keep it with all that comes back."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.checkpoints import resolve as checkpoints_resolve
from pytest_vllm_gates.cli import capture
from pytest_vllm_gates.client import http
from pytest_vllm_gates.drive.resend import resend
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents import parts as incidents_parts, types as facts
from pytest_vllm_gates.incidents.importers import BODY_BYTES, object_of, path_of, request
from pytest_vllm_gates.redaction import redactor as redaction_redactor
from pytest_vllm_gates.server.types import Endpoint

if TYPE_CHECKING:
    import argparse

TIMEOUT_S = 600.0
KEY_VARIABLE = "OPENAI_API_KEY"


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Give the command its arguments."""
    text = "send one request as it is to a server that runs, and write an incident bundle"
    parser = commands.add_parser("capture", help=text, description=text)
    parser.add_argument("--base-url", required=True, metavar="URL", help="http://host:8000/v1")
    parser.add_argument(
        "--request", required=True, metavar="FILE", help="the JSON body; - for the standard input"
    )
    parser.add_argument("--path", help="where it goes; by default what the body asks for: /v1/…")
    parser.add_argument(
        "--api-key-env", default=KEY_VARIABLE, metavar="NAME", help=f"default: {KEY_VARIABLE}"
    )
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, metavar="SECONDS")
    capture.declare(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the bundle; 1 where the answer is not as expected."""
    body = _body(options.request)
    asked = request(options.path or path_of(object_of(body)), body, headers={})
    key = os.environ.get(options.api_key_env)
    redactor = redaction_redactor.of_process(os.environ, [options.base_url])
    redactor.learn(key)
    endpoint = Endpoint(_url(options.base_url), "", key)
    family, model = capture.family_of(options.model, [asked])
    served = checkpoints_resolve.served(family, endpoint.base_url, key)
    before = incidents_parts.metrics(endpoint)
    (sent,) = resend(endpoint, [asked], options.timeout)
    if sent.status is None:
        print(f"no answer: {sent.error}", file=sys.stderr)
    texts = {facts.METRICS_BEFORE: before, facts.METRICS_AFTER: incidents_parts.metrics(endpoint)}
    version = http.version(endpoint) if sent.status is not None else None
    options.slug = model or "request"
    path, wrong = capture.write(
        options,
        [sent],
        facts.Lane(
            name="base-url", title="a server that runs", form="base_url",
            base_url=endpoint.base_url, env={}, serve={}, overlay=(),
        ),
        facts.Checkpoint(name=served.name, source=served.source, revision=served.revision),
        redactor,
        files={name: text.encode() for name, text in texts.items() if text},
        versions={"vllm": version} if version else {},
    )  # fmt: skip
    seconds = f", {sent.pieces[-1][0]:.3f} s" if sent.pieces else ""
    print(f"status {sent.status}, {len(sent.pieces)} pieces{seconds}")
    for told in wrong:
        print(f"  {told}")
    print(f"{path}\nsend it again: pytest --repro {path} --base-url {endpoint.base_url}")
    return int(bool(wrong))


def _url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise UserError(f"--base-url {text!r} is no URL; for example http://127.0.0.1:8000/v1")
    return text.rstrip("/")


def _body(name: str) -> bytes:
    try:
        body = sys.stdin.buffer.read(BODY_BYTES + 1) if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror}") from error
    if len(body) > BODY_BYTES:
        raise UserError(f"{name} has more than {BODY_BYTES} bytes")
    return body
