"""Opens goldens and baselines from elsewhere: a folder, an archive, its URL, or an object store.

A store is only read. Its `golden/` lies at the top, or in the one folder that an archive has there.
"""

from __future__ import annotations

import atexit
import tempfile
from pathlib import Path

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.gates_store import archive, fetch, generations, objects, schemes

FOLDER = "golden"
LAYOUT = "golden/<family>/<member or main>/<checkpoint>/ and golden/baselines/"


def opened(source: str) -> Path:
    """Return the folder of goldens of a store; unpacked files are removed when the process ends.

    `source`: the http(s) URL of an archive, the URL of an object store, or the path of a folder or
    an archive. From an object store the last push is read. Raises `UserError` if it cannot be
    read, is not safe to unpack, or has no goldens.
    """
    shown = source
    if fetch.is_url(source):
        shown = fetch.without_login(source)
        folder = _unpacked(fetch.archive(source))
    elif schemes.is_store(source):
        return pulled(source)
    elif Path(source).is_dir():
        folder = Path(source)
    elif Path(source).exists():
        folder = _unpacked(Path(source))
    else:
        raise UserError(
            f"the store {source!r} does not exist\n"
            "name a folder, an archive (.tar.gz, .zip), the URL of one, or an object store's: "
            "--gates-store SOURCE"
        )
    found = _golden(folder)
    if found is None:
        raise UserError(
            f"the store {shown} has no folder {FOLDER}/\n"
            f"expected {LAYOUT}; make an archive: tar -czf golden.tar.gz {FOLDER}"
        )
    return found


def _golden(folder: Path) -> Path | None:
    """Return the folder of goldens in a folder, or one level below; None without goldens."""
    if folder.name == FOLDER:
        return folder
    if (folder / FOLDER).is_dir():
        return folder / FOLDER
    below = [path for path in folder.iterdir() if path.is_dir()]
    if len(below) == 1 and (below[0] / FOLDER).is_dir():
        return below[0] / FOLDER
    return None


def pulled(source: str) -> Path:
    """Return the folder of goldens of the last push; raises `UserError` without one."""
    shelf = generations.Shelf(objects.Objects(source), generations.GOLDEN)
    number = shelf.count()
    if not number:
        raise UserError(
            f"the store {fetch.without_login(source)} has no goldens\n"
            f"push goldens: vllm-gates store push {fetch.without_login(source)} golden {FOLDER}"
        )
    folder = _temporary() / FOLDER
    folder.mkdir()
    shelf.unpack(shelf.generation(number), folder)
    return folder


def _unpacked(path: Path) -> Path:
    folder = _temporary()
    archive.unpack(path, folder)
    return folder


def _temporary() -> Path:
    temporary = tempfile.TemporaryDirectory(prefix="vllm-gates-store-")
    atexit.register(temporary.cleanup)
    return Path(temporary.name)
