"""The files that prompts are made from: in a folder, or fetched from the Hub without weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError, UnreadableError
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.checkpoint import Checkpoint

CONFIG = "config.json"
NAMES = (
    "chat_template.jinja",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    CONFIG,
)
OLD_VOCABULARIES = ("*.model", "vocab.json", "merges.txt")


def folder(checkpoint: Checkpoint) -> Path:
    """Return a folder with the checkpoint's prompt files; raises `UserError` without them."""
    if checkpoint.folder:
        return checkpoint.folder
    return _fetch(checkpoint.source, checkpoint.revision, (*NAMES, *OLD_VOCABULARIES))


def alone(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint as a local folder of its prompt files: all that a renderer needs."""
    return replace(checkpoint, source=str(folder(checkpoint)), revision=None)


def config(source: str, revision: str | None = None) -> dict[str, Any]:
    """Return the `config.json` of a folder or a Hub id; raises `UserError` without one."""
    place = Path(source).expanduser()
    if not place.is_dir():
        place = _fetch(source, revision, (CONFIG,))
    try:
        values: dict[str, Any] = bounded_read.json(place / CONFIG, whole=True)
    except UnreadableError as error:
        if (place / CONFIG).exists():
            raise
        raise UserError(f"{source} has no {CONFIG}: it is not a checkpoint") from error
    except FileError as error:
        raise UserError(f"{place / CONFIG} is not JSON: {error.why}") from error
    return values


def _fetch(repository: str, revision: str | None, patterns: tuple[str, ...]) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - only where the Hub is asked
    from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415

    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(patterns)))
    except (HfHubHTTPError, OSError) as error:
        raise UserError(
            f"checkpoint {repository}: its prompt files cannot be fetched: {error}\n"
            "log in with `hf auth login`, or name a local folder"
        ) from error
