"""A compressed answer is decompressed in small pieces, whatever its content."""

from __future__ import annotations

import gzip
import zlib

import httpx2 as httpx
import pytest

from pytest_vllm_gates.client.decoding import OUTPUT_BYTES, Decompressor

TEXT = b'{"data": [{"id": "m"}]}' * 100


@pytest.mark.parametrize(
    ("encoding", "data"),
    [("gzip", gzip.compress(TEXT)), ("deflate", zlib.compress(TEXT))],
    ids=["gzip", "deflate"],
)
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_body_comes_out_whole(encoding: str, data: bytes, step: int) -> None:
    decompressor = Decompressor(encoding)
    parts = [data[at : at + step] for at in range(0, len(data), step)]
    assert b"".join(piece for part in parts for piece in decompressor.pieces(part)) == TEXT


def test_bomb_comes_out_in_small_pieces() -> None:
    pieces = Decompressor("gzip").pieces(gzip.compress(b" " * 10 * 2**20))
    assert {len(next(pieces)) for _ in range(100)} == {OUTPUT_BYTES}


def test_invalid_gzip_is_an_http_error() -> None:
    with pytest.raises(httpx.DecodingError, match="cannot be decompressed"):
        list(Decompressor("gzip").pieces(b"no gzip at all"))


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "x" * 10_000])
def test_other_encodings_are_named(encoding: str) -> None:
    with pytest.raises(httpx.DecodingError, match="is compressed as ") as caught:
        Decompressor(encoding)
    assert len(str(caught.value)) < 200
