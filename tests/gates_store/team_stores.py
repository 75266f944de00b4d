"""Stores that a team may share: a folder, S3 as moto serves it, and one behind HTTP."""

from __future__ import annotations

import contextlib
import itertools
import logging
from typing import TYPE_CHECKING

import boto3
from moto.server import ThreadedMotoServer
from servers.putting import PuttingServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

KINDS = ("folder", "s3", "http")
BUCKETS = itertools.count()


@contextlib.contextmanager
def s3(patch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve S3 from 127.0.0.1; yield the URL of a new bucket's folder."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        }.items():
            patch.setenv(name, value)
        bucket = f"gates-{next(BUCKETS)}"
        boto3.client("s3").create_bucket(Bucket=bucket)
        yield f"s3://{bucket}/team"
    finally:
        server.stop()


@contextlib.contextmanager
def made(kind: str, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the source of a new store."""
    if kind == "s3":
        with s3(patch) as url:
            yield url
    elif kind == "http":
        with PuttingServer() as server:
            yield server.url
    else:
        yield str(folder / "team store")
