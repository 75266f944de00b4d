"""Reads and writes the objects of a store: in a folder, an object store, or behind HTTP.

obstore supports the object stores: S3 and compatible ones, Google's and Azure's. Each is configured
by its usual environment variables, see https://developmentseed.org/obstore/latest/authentication/.
Behind HTTP objects are read with GET and written with PUT, as in raw artifact repositories.
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import limits, read as bounded_read
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.gates_store.fetch import without_login
from pytest_vllm_gates.gates_store.schemes import SCHEMES, is_store

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "VLLM_GATES_STORE_TOKEN"  # noqa: S105 - its variable
"""The environment variable with the bearer token of a store behind HTTP."""
TIMEOUT_S = 120
CONNECT_S = 20
RETRIES = 3
PIECE_BYTES = 2**20
INSTALL = "pip install 'pytest-vllm-gates[store]'"
PRINTED = re.compile(r"\s*Debug source:.*", re.DOTALL)
"""The debug output at the end of obstore's messages."""
MESSAGE_CHARACTERS = 300


class ObjectExistsError(Exception):
    """An object of this name already exists."""


class Objects:
    """The objects below one URL, or in a folder; their names have slashes.

    Every method raises `UserError` if the store cannot be reached or refuses.
    """

    def __init__(self, source: str) -> None:
        self.shown = without_login(source) if "://" in source else source
        self._http = source.lower().startswith(("http://", "https://"))
        try:
            import obstore  # noqa: PLC0415 - an extra
            from obstore.store import from_url  # noqa: PLC0415
        except ImportError as error:
            raise UserError(
                f"the store {self.shown}: obstore, which reads and writes it, is not installed\n"
                f"{INSTALL}"
            ) from error
        self._obstore = obstore
        # Some of obstore's errors are Python's.
        self._errors = (obstore.exceptions.BaseError, OSError, NotImplementedError, ValueError)
        url, options = _folder(source) if not is_store(source) else (source, self._options(source))
        try:
            self._store: Any = from_url(url, **options)
        except Exception as error:
            raise self._failed("", error) from error

    def _options(self, source: str) -> dict[str, Any]:
        if source.lower().startswith("file:"):
            return {"mkdir": True, "automatic_cleanup": False}
        client: dict[str, Any] = {
            "timeout": f"{TIMEOUT_S}s", "connect_timeout": f"{CONNECT_S}s",
        }  # fmt: skip
        if source.lower().startswith("http://") or _plain_endpoint():
            client["allow_http"] = True
        if self._http and (token := os.environ.get(TOKEN)):
            client["default_headers"] = {"authorization": f"Bearer {token}"}
        retry = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=TIMEOUT_S)}
        return {"client_options": client, "retry_config": retry}

    def read(self, name: str, limit: int) -> bytes | None:
        """Return an object, or None if it is missing. Raises `UserError` beyond `limit` bytes."""
        most = bounded_read.most(limit)
        try:
            found = self._obstore.get(self._store, name)
            if found.meta["size"] > most:
                raise self._too_large(name, found.meta["size"], most)
            return b"".join(self._pieces(name, found, most))
        except FileNotFoundError:
            return None
        except self._errors as error:
            raise self._failed(name, error) from error

    def _pieces(self, name: str, found: Any, most: int) -> Iterator[bytes]:
        size = 0
        for piece in found.stream(min_chunk_size=PIECE_BYTES):
            size += len(piece)
            if size > most:
                raise self._too_large(name, size, most)
            yield bytes(piece)

    def exists(self, name: str) -> bool:
        """Return whether an object of this name exists."""
        try:
            self._obstore.head(self._store, name)
        except FileNotFoundError:
            return False
        except self._errors as error:
            raise self._failed(name, error) from error
        return True

    def create(self, name: str, data: bytes) -> None:
        """Write an object whole; raises `ObjectExistsError` if it already exists.

        Behind HTTP writes are not conditional: if two processes write at the same moment, the later
        one wins.
        """
        if self._http and self.exists(name):
            raise ObjectExistsError(name)
        try:
            self._obstore.put(
                self._store,
                name,
                data,
                mode="overwrite" if self._http else "create",
                use_multipart=False,
            )
        except self._obstore.exceptions.AlreadyExistsError as error:
            raise ObjectExistsError(name) from error
        except self._errors as error:
            raise self._failed(name, error) from error

    def _failed(self, name: str, error: Exception) -> UserError:
        why = PRINTED.sub("", str(error)).strip()[:MESSAGE_CHARACTERS]
        where = f"{self.shown.rstrip('/')}/{name}" if name else self.shown
        return UserError(
            f"the store failed: {where}: {why}\n"
            "check that it is up, that the bucket or folder exists, and that its variables are set "
            f"(AWS_REGION, AWS_ENDPOINT_URL, …; {TOKEN} behind HTTP)"
        )

    def _too_large(self, name: str, size: int, most: int) -> UserError:
        return UserError(f"{self.shown}: {name}: {bounded_read.too_large(size, most)}")


def _plain_endpoint() -> bool:
    """Return whether the variables name an S3 endpoint without TLS."""
    endpoints = (os.environ.get(name, "") for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"))
    return any(endpoint.startswith("http://") for endpoint in endpoints)


def _folder(source: str) -> tuple[str, dict[str, Any]]:
    if "://" in source:
        raise UserError(
            f"{limits.excerpt(without_login(source))} cannot be a store\n"
            f"name a folder, or a URL that begins with {', '.join(SCHEMES)}"
        )
    return Path(source).absolute().as_uri(), {"mkdir": True, "automatic_cleanup": False}
