"""The contents of an incident besides its requests: logs, metrics, prompt files, seeds."""

from __future__ import annotations

import gzip
import itertools
import json
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.checkpoints import prompt_files
from pytest_vllm_gates.client import http
from pytest_vllm_gates.server.log import earliest_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.client.exchange import Sent

LOG_HEAD_BYTES = 2 * 2**20
LOG_TAIL_BYTES = 14 * 2**20
EXCERPT_LINES = 80
EXCERPT_BYTES = 2**16
METRICS_S = 2.0
TOKENIZER = "tokenizer.json"
PROMPT_FILES_BYTES = 32 * 2**20
# The fields that no case sets: the model, the sampling, and how the answer is streamed.
WAY = {"model", "temperature", "seed", "stream", "stream_options", "stream_interval"}


def log(path: Path) -> tuple[bytes, str]:
    """Return a log, compressed, and a note on what was cut: a long log loses its middle.

    The note is empty if nothing was cut.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= LOG_HEAD_BYTES + LOG_TAIL_BYTES:
            return gzip.compress(file.read(), mtime=0), ""
        head = file.read(LOG_HEAD_BYTES)
        file.seek(size - LOG_TAIL_BYTES)
        tail = file.read()
    left_out = size - len(head) - len(tail)
    gap = f"\n[{left_out} bytes are left out here]\n".encode()
    note = f"the log: {left_out} of its {size} bytes were not kept, from the middle"
    return gzip.compress(head + gap + tail, mtime=0), note


def excerpt(path: Path) -> str:
    """Return the first error of a log and its last lines."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - EXCERPT_BYTES))
        last = file.read().decode("utf-8", "replace").splitlines()[-EXCERPT_LINES:]
    first = earliest_error(path)
    return "\n".join(["the first error, or the end:", *first, "", "the end:", *last]) + "\n"


def metrics(endpoint: Endpoint) -> str:
    """Return the server's current metrics; empty if it has none or takes too long."""
    try:
        with http.client(endpoint) as client:
            reply = client.get("/metrics", timeout=METRICS_S)
    except httpx.HTTPError:
        return ""
    return reply.text if reply.is_success else ""


def prompts_of(
    checkpoint: Checkpoint, small: Checkpoint | None, *, whole: bool
) -> dict[str, bytes]:
    """Return the files that a checkpoint's prompts are made from, by name.

    Empty if they equal the files of the shipped miniature, `small`, if the checkpoint is not on
    this machine, and if its files are too large to be stored; unless `whole`, also if its tokenizer
    does not fit the miniature's weights.
    """
    own_files, shipped_files = (
        _prompt_files(source.folder) if source else {} for source in (checkpoint, small)
    )
    if own_files == shipped_files or own_files is None or shipped_files is None:
        return {}
    return own_files if whole or own_files.get(TOKENIZER) == shipped_files.get(TOKENIZER) else {}


def _prompt_files(folder: Path | None) -> dict[str, bytes] | None:
    """Return the files by name; None if they are too large."""
    names = [name for name in prompt_files.NAMES if name != prompt_files.CONFIG]
    paths = [folder / name for name in names] if folder else []
    files = [path for path in paths if path.is_file()]
    if sum(path.stat().st_size for path in files) > PROMPT_FILES_BYTES:
        return None
    return {path.name: bounded_read.data(path, PROMPT_FILES_BYTES) for path in files}


def answering(sends: Iterable[Sent], requests: Sequence[Mapping[str, Any]]) -> list[Sent]:
    """Return the sends of one of these requests, streamed or not."""
    plain_requests = [json.loads(json.dumps(request, default=str)) for request in requests]
    wanted_bodies = [
        {key: request[key] for key in request if key not in WAY} for request in plain_requests
    ]
    return [send for send in sends if any(_asks(body_of(send), each) for each in wanted_bodies)]


def body_of(sent: Sent) -> dict[str, Any]:
    """Return the JSON object in a send's body; empty if there is none."""
    try:
        body = json.loads(sent.body)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def seeds(sends: Iterable[Sent]) -> dict[str, int]:
    """Return the seeds in the requests; the keys list the requests that use a seed."""
    names_by_seed: dict[int, list[str]] = {}
    for sent in sends:
        seed = body_of(sent).get("seed")
        if isinstance(seed, int):
            names_by_seed.setdefault(seed, []).append(sent.name)
    return {
        f"requests {', '.join(names[:3])}{' and more' if len(names) > 3 else ''}": seed  # noqa: PLR2004
        for seed, names in names_by_seed.items()
    }


def within(sends: Iterable[Sent], room: int) -> list[Sent]:
    """Return the first sends whose total size is at most `room` bytes."""
    requests_sent = list(sends)
    totals = itertools.accumulate(sent.size for sent in requests_sent)
    return [sent for sent, total in zip(requests_sent, totals, strict=True) if total <= room]


def _asks(body: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return bool(wanted) and {key: value for key, value in body.items() if key not in WAY} == wanted
