"""Reads chat templates as bytes, and reports why a file is not a valid one."""

from __future__ import annotations

import codecs
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.checkpoints import prompt_files
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 2**20
TEMPLATE_BYTES = 4 * MIB
"""Templates of known families have up to 20 KB."""
PROMPT_FILE_BYTES = 512 * MIB
"""The largest tokenizer.json of a known family has 33 MB."""
TEMPLATE_FILE = "chat_template.jinja"
MORE_TEMPLATES = "additional_chat_templates"
TOKENIZER_CONFIG = "tokenizer_config.json"
# The longer ones first: UTF-32's begins with UTF-16's.
MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
    (codecs.BOM_UTF8, "UTF-8 with a byte-order mark"),
)


def check_folder(folder: Path) -> None:
    """Raise `UserError` for an invalid file among those of a checkpoint's prompts.

    Templates and `tokenizer_config.json`, which may contain one, are read; of the others only the
    size is checked.
    """
    for path in sorted(folder / name for name in {*prompt_files.NAMES} - {TEMPLATE_FILE}):
        if _size(path, PROMPT_FILE_BYTES) is not None and path.name == TOKENIZER_CONFIG:
            text_of(path.read_bytes(), str(path))
    for path in _templates(folder):
        read(path)


def _templates(folder: Path) -> Iterator[Path]:
    yield folder / TEMPLATE_FILE
    yield from sorted((folder / MORE_TEMPLATES).glob("*.jinja"))


def read(path: Path) -> str | None:
    """Return the text of a template file, None if it is missing; raises `UserError`."""
    if _size(path, TEMPLATE_BYTES) is None:
        return None
    with path.open("rb") as file:
        return text_of(file.read(TEMPLATE_BYTES), str(path))


def named_by_flag(template: str) -> str:
    """Return the text of a template in one of vLLM's forms: a file, or the text itself.

    Raises `UserError` for a file that is not a valid template.
    """
    try:
        text = read(Path(template))
    except (OSError, ValueError):  # a text too long, or with other characters than a file's name
        text = None
    return text_of(template.encode(), "the chat_template of [serve]") if text is None else text


def text_of(data: bytes, name: str) -> str:
    """Decode UTF-8; raises `UserError` with the byte offset of an invalid sequence."""
    for mark, encoding in MARKS:
        if data.startswith(mark):
            raise UserError(
                f"{name}: byte 0: it begins with the byte-order mark {mark.hex(' ')} ({encoding}); "
                f"expected UTF-8 without one\n{_converted(name)}"
            )
    at = data.find(b"\0")
    if at >= 0:
        raise UserError(
            f"{name}: byte {at}: a NUL byte; expected UTF-8 text (is the file UTF-16, or binary?)\n"
            f"{_converted(name)}"
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name}: byte {error.start}: 0x{data[error.start]:02x} is not UTF-8 ({error.reason}); "
            f"is the file in another encoding, such as Latin-1?\n{_converted(name)}"
        ) from error


def _converted(name: str) -> str:
    return f"find its encoding: file {name}; then convert it: iconv -f ENCODING -t UTF-8 {name}"


def _size(path: Path, most: int) -> int | None:
    """Return a file's size, None if it is missing; raises `UserError` for other kinds of files."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{path}: expected a file, got a {_kind(status.st_mode)}")
    if status.st_size > most:
        raise UserError(
            f"{path}: it has {status.st_size:,} bytes, more than the {most // MIB} MiB such a file "
            "may have"
        )
    return status.st_size


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "folder"), (stat.S_ISFIFO, "FIFO"), (stat.S_ISSOCK, "socket"))
    return next((name for applies, name in kinds if applies(mode)), "device")
