"""zstd files are read whole, frame by frame, and a cut or damaged one is an error."""

from __future__ import annotations

import io

import pytest
import zstandard

from pytest_vllm_gates.bounded.zstd import ZstdReader

CONTENT = b"".join(b"line %d\n" % number for number in range(20_000))


def whole(packed: bytes, size: int = 1000) -> bytes:
    reader = ZstdReader(io.BytesIO(packed))
    return b"".join(iter(lambda: reader.read(size), b""))


@pytest.mark.parametrize("size", [7, 1000, 10**6])
def test_frames_are_read_one_after_another(size: int) -> None:
    packed = zstandard.compress(CONTENT) + zstandard.compress(b"") + zstandard.compress(b"the end")
    assert whole(packed, size) == CONTENT + b"the end"
    assert whole(b"") == b""


@pytest.mark.parametrize("left", [5, 300, -1])
def test_a_cut_file_is_an_error(left: int) -> None:
    with pytest.raises(EOFError, match="the last frame has no end"):
        whole(zstandard.compress(CONTENT)[:left])


def test_a_damaged_file_is_an_error() -> None:
    packed = bytearray(zstandard.compress(CONTENT))
    packed[9:40] = b"\xff" * 31
    with pytest.raises((zstandard.ZstdError, EOFError)):
        whole(bytes(packed))


def test_a_bomb_is_unpacked_piece_by_piece() -> None:
    reader = ZstdReader(io.BytesIO(zstandard.compress(bytes(10**8))))
    assert reader.read(1000) == bytes(1000)
    assert len(reader._ready) < 2 * 10**7
