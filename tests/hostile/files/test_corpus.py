"""Every bad file of the corpus is refused by its loader: with its own error, and in time."""

from __future__ import annotations

import functools
import shutil
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hostile.files import made
from hostile.files.loaders import LOADERS, REFUSES, Loader, samples
from pytest_vllm_gates.diagnosis import explain as _explain  # noqa: F401 - imported before a clock runs
from pytest_vllm_gates.history import store

if TYPE_CHECKING:
    from collections.abc import Callable

CORPUS = Path(__file__).parent / "corpus"
FILES = sorted(path for path in CORPUS.rglob("*") if path.is_file())
MOST = 16.0
"""How many times as long as reading 30,000 keys of TOML a refusal may take on the same machine."""
SHOWN = 5000
"""Characters of the longest message."""


@pytest.fixture(scope="module", autouse=True)
def _warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Read what ships once: it is no part of reading a bad file."""
    for loader, sample in samples():
        path = loader.path(tmp_path_factory.mktemp("good"))
        path.write_bytes(sample)
        loader.load(path)


@functools.cache
def most_s() -> float:
    """Return the seconds of processor time that a refusal may take."""
    begun = time.process_time()
    tomllib.loads("".join(f"key_{number} = {number}\n" for number in range(30_000)))
    return MOST * (time.process_time() - begun)


def refuse(loader: Loader, path: Path) -> str:
    """Load a file that is to be refused, or, of a tolerant loader, read; return the message."""
    most = most_s()
    begun = time.process_time()
    message = ""
    try:
        loader.load(path)
    except REFUSES as error:
        message = str(error)
    assert time.process_time() - begun < most
    assert len(message) < SHOWN + 4 * len(str(path))
    return message


@pytest.mark.parametrize("name", LOADERS)
def test_good_file_is_read(name: str, tmp_path: Path) -> None:
    loader = LOADERS[name]
    path = loader.path(tmp_path)
    path.write_bytes(loader.sample())
    loader.load(path)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(CORPUS).as_posix())
def test_bad_file_is_refused(file: Path, tmp_path: Path) -> None:
    loader = LOADERS[file.parent.name]
    path = loader.path(tmp_path)
    shutil.copy(file, path)
    message = refuse(loader, path)
    assert bool(message) is not loader.tolerant, "a wrong file is accepted"


CASES = [
    (loader, name, make) for loader in LOADERS.values() for name, make in made.made(loader).items()
]


@pytest.mark.parametrize(
    ("loader", "name", "make"), CASES, ids=[f"{loader.name}: {name}" for loader, name, _ in CASES]
)
def test_large_or_odd_file_is_refused(
    loader: Loader,
    name: str,
    make: Callable[[Path], object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "QUERIES_S", 0.5)
    path = loader.path(tmp_path)
    if name in made.OWN.get(loader.name, {}):
        path.write_bytes(loader.sample())
    make(path)
    message = refuse(loader, path)
    # A log that is not there, or a part of one, is read as well as it can be.
    assert message or loader.tolerant, "a wrong file is accepted"


def test_every_loader_has_bad_files() -> None:
    assert {file.parent.name for file in FILES} == set(LOADERS)
