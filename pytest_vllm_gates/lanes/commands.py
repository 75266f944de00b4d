"""The commands with which a person makes and serves a lane without the gates."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog import flags
from pytest_vllm_gates.redaction.shown import (
    is_secret_flag,
    redacted,
    redacted_value,
    redacted_words,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.lane import Lane

PORT = 8000
PYTHON = '"$PYTHON"'


def commands(
    lane: Lane,
    subjects: Iterable[tuple[Family, Checkpoint]],
    *,
    overlay: Path | None = None,
    env: Mapping[str, str] | None = None,
    port: int = PORT,
) -> list[str]:
    """Return the shell commands that serve these checkpoints from a lane.

    A secret is written as the variable of its name.
    """
    if lane.base_url is not None:
        (url,) = redacted_words([lane.base_url])
        return [f"# lane {lane.name} runs at {url}: send the requests there"]
    make_command = []
    if lane.command is None:
        make_command = [f'PYTHON="$(vllm-gates lane make {shlex.quote(lane.name)})"']
    return make_command + [_serve(lane, subject, overlay, env or {}, port) for subject in subjects]


def _serve(
    lane: Lane,
    subject: tuple[Family, Checkpoint],
    overlay: Path | None,
    env: Mapping[str, str],
    port: int,
) -> str:
    family, checkpoint = subject
    source: dict[str, Any] = {"model": checkpoint.source, "served_model_name": family.name}
    if checkpoint.revision:
        source["revision"] = checkpoint.revision
    if lane.command is None:
        source["port"] = port
    served = flags.merged(source, flags.serving(family, checkpoint, lane))
    secret = {name for name in served if is_secret_flag(name)}
    shown = {name: redacted_value(name, value) for name, value in _without(served, secret).items()}
    words = [_quoted(text) for text in flags.command_line(shown)]
    words += [f'--{name.replace("_", "-")} "${name.upper()}"' for name in sorted(secret)]
    variables = _variables(lane, overlay, env)
    if lane.command is not None:
        prefix = flags.start_command(lane, (), ["{here}"], checkpoint.source, port)
        start = [_quoted(word) for word in redacted_words(prefix)]
        if lane.served_model_name:
            return " ".join([*variables, *start])
        position = start.index(_quoted("{here}"))
        return " ".join([*variables, *start[:position], *words, *start[position + 1 :]])
    return " ".join([*variables, PYTHON, *map(_quoted, lane.start.server), *words])


def _variables(lane: Lane, overlay: Path | None, env: Mapping[str, str]) -> list[str]:
    """Return the variables to set before the command; secrets are in the environment already."""
    redacted_env = redacted(lane.env)
    values = {
        name: value for name, value in lane.env.items() if redacted_env[name] == value
    } | dict(env)
    if overlay is not None:
        after = f":{values['PYTHONPATH']}" if values.get("PYTHONPATH") else ""
        values["PYTHONPATH"] = f"{overlay}{after}"
    words = [f"{name}={_quoted(value)}" for name, value in values.items()]
    if lane.command is None:
        # Programs of its packages are found in the same way as when the gates start the server.
        words.append('PATH="${PYTHON%/*}:$PATH"')
    return words


def _without(served: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in served.items() if name not in names}


def _quoted(word: str) -> str:
    return shlex.quote(word)
