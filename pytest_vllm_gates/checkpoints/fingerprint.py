"""Checksums of a checkpoint's chat template, tokenizer and config.

They are read from a local folder or from the Hub's cache, without the network.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.bounded.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint

CONFIG = "config.json"
TEMPLATE, OLD_TEMPLATE = "chat_template.jinja", "chat_template.json"
MORE_TEMPLATES = "additional_chat_templates/*.jinja"
TOKENIZER_CONFIG = "tokenizer_config.json"
IN_CONFIG = "chat_template"
# Every file of any family's tokenizer; a checkpoint has a few of them.
TOKENIZER = (
    "tokenizer.json", TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "vocab.txt", "merges.txt", "tekken.json", "*.model", "*.tiktoken",
)  # fmt: skip
CONFIGS = (CONFIG, "generation_config.json")
NONE = "none"
CONTENT_BYTES = 64 * MIB
"""Twice the size of the largest `tokenizer.json` of a released model."""


@dataclass(frozen=True)
class Fingerprint:
    """sha256 of a checkpoint's parts, in hex; None if its files are not on this machine."""

    template: str | None = None
    """`none` for a checkpoint that has no template."""
    tokenizer: str | None = None
    config: str | None = None
    revision: str | None = None
    """The commit of a checkpoint in the Hub's cache."""


def of(checkpoint: Checkpoint, serve: Mapping[str, Any]) -> Fingerprint:
    """Return a checkpoint's checksums as served with these flags.

    A template or tokenizer in the flags replaces the checkpoint's.
    """
    folder, revision = place(checkpoint.source, checkpoint.revision)
    tokenizer_name = serve.get("tokenizer")
    tokens = place(str(tokenizer_name), None)[0] if tokenizer_name else folder
    is_complete = tokens is not None and revision is None
    template = _named_template(serve.get("chat_template")) or _template(
        tokens, is_complete=is_complete
    )
    return Fingerprint(
        template=template,
        tokenizer=_tokenizer(tokens),
        config=_files(folder, CONFIGS) if folder else None,
        revision=revision,
    )


def file(path: Path) -> str:
    """Return the sha256 of a file, in hex."""
    with bounded_read.opened(path) as opened:
        digest = hashlib.sha256()
        while part := opened.read(2**20):
            digest.update(part)
        return digest.hexdigest()


def folder(path: Path) -> dict[str, str]:
    """Return the sha256 of every file below a folder, by its path inside; no bytecode."""
    return {
        str(each.relative_to(path)): file(each)
        for each in sorted(path.rglob("*"))
        if each.is_file() and "__pycache__" not in each.parts
    }


def place(source: str, revision: str | None) -> tuple[Path | None, str | None]:
    """Return the folder of a checkpoint's files and, in the Hub's cache, its commit.

    Both are None if the files are in neither place; the network is not used.
    """
    local = Path(source).expanduser()
    if local.is_dir():
        return local, None
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - only for the Hub's
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415

    try:
        config_path = try_to_load_from_cache(source, CONFIG, revision=revision)
    except HFValidationError:
        return None, None
    if not isinstance(config_path, str):
        return None, None
    snapshot = Path(config_path).parent
    return snapshot, snapshot.name


def _named_template(flag: object) -> str | None:
    """Return the checksum of a template in a flag, which is a file or a text."""
    if not isinstance(flag, str):
        return None
    path = Path(flag).expanduser()
    if "\n" not in flag and path.is_file():
        return file(path)
    # A missing path is a path on another machine.
    return _digest([(IN_CONFIG, flag.encode())]) if "{" in flag else None


def _template(place: Path | None, *, is_complete: bool) -> str | None:
    """Return the checksum of all templates in a folder; `none` only for a whole folder."""
    if place is None:
        return None
    paths = [place / TEMPLATE, place / OLD_TEMPLATE, *sorted(place.glob(MORE_TEMPLATES))]
    parts = [(path.name, _content(path)) for path in paths if path.is_file()]
    templates = _json(place / TOKENIZER_CONFIG).get(IN_CONFIG)
    if templates is not None:
        # The same template may be in its own file or in the config; its place makes no
        # difference.
        text = templates if isinstance(templates, str) else json.dumps(templates, sort_keys=True)
        parts = parts or [(TEMPLATE, text.encode())]
    if parts:
        return _digest(parts)
    return NONE if is_complete else None


def _tokenizer(place: Path | None) -> str | None:
    """Return the checksum of a tokenizer's files, without the template in its config."""
    if place is None:
        return None
    parts = []
    for path in sorted({each for pattern in TOKENIZER for each in place.glob(pattern)}):
        content = _content(path)
        if path.name == TOKENIZER_CONFIG:
            config = {name: value for name, value in _json(path).items() if name != IN_CONFIG}
            content = json.dumps(config, sort_keys=True).encode()
        parts.append((path.name, content))
    return _digest(parts) if parts else None


def _files(place: Path, names: Iterable[str]) -> str | None:
    parts = [(name, _content(place / name)) for name in names if (place / name).is_file()]
    return _digest(parts) if parts else None


def _digest(parts: Iterable[tuple[str, bytes]]) -> str:
    """Return one checksum of several named contents."""
    digest = hashlib.sha256()
    for name, content in parts:
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _content(path: Path) -> bytes:
    """Return a file's bytes; for a file too large for a prompt's file, only its size."""
    try:
        return bounded_read.data(path, CONTENT_BYTES)
    except FileError:
        return f"{path.stat().st_size} bytes".encode()


def _json(path: Path) -> dict[str, Any]:
    try:
        return bounded_read.json_object(path, whole=True)
    except FileError:
        return {}
