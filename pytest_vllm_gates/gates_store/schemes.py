"""Recognises sources that are stores with a URL."""

from __future__ import annotations

from urllib.parse import urlsplit

SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "http", "https", "file")
"""The schemes of obstore: https://developmentseed.org/obstore/latest/api/store/."""


def is_store(source: str) -> bool:
    """Return whether a source is the URL of a store, and not a path."""
    return "://" in source and urlsplit(source).scheme.lower() in SCHEMES
