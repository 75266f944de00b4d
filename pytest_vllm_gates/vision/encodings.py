"""One scene in every kind of file that a server has to read, with the expected answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_vllm_gates.vision import files
from pytest_vllm_gates.vision.cases import VisionCase, one
from pytest_vllm_gates.vision.draw import pixels
from pytest_vllm_gates.vision.types import Scene

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.vision.draw import Pixels

PNG, JPEG, WEBP, GIF = "image/png", "image/jpeg", "image/webp", "image/gif"
ROTATED = 6
"""The EXIF orientation of a picture that has to be turned by 90 degrees clockwise to be seen."""
HUGE_PIXELS = 2000
LONG_PIXELS, THIN_PIXELS = 600, 12


class PictureFile:
    """A picture in some kind of file, and the question about it."""

    def __init__(self, name: str, case: VisionCase, data: bytes, kind: str = PNG) -> None:
        self.name = name
        self.case = replace(case, name=name)
        self.url = files.data_url(data, kind)
        self.size = (case.scenes[0].width, case.scenes[0].height)
        """Width and height in pixels as it is to be seen."""

    def url_of(self, _: Scene) -> str:
        """Return the file's data URL; there is one, whatever the scene."""
        return self.url


def png_url(scene: Scene) -> str:
    """Return a scene as the data URL of a PNG."""
    return files.data_url(files.png(pixels(scene)), PNG)


def png_bytes() -> bytes:
    """Return a PNG of a red square."""
    return files.png(pixels(_RED))


def every() -> tuple[PictureFile, ...]:
    """Return pictures in every kind of file."""
    return tuple(_made(name, *made) for name, made in _KINDS.items())


def _made(
    name: str, scene: Scene, write: Callable[[Pixels], bytes], kind: str = PNG
) -> PictureFile:
    return PictureFile(name, one(scene), write(pixels(scene)), kind)


def _grey(drawn: Pixels) -> Pixels:
    return drawn[..., :1]


def _turned(drawn: Pixels) -> bytes:
    """Return a JPEG that lies on its left side, with that orientation in its EXIF."""
    return files.jpeg(np.rot90(drawn), orientation=ROTATED)


def _see_through(drawn: Pixels) -> bytes:
    """Return a PNG whose background is black and wholly transparent."""
    clear = (drawn == WHITE).all(-1)
    opaque = np.where(clear[..., None], 0, drawn).astype(np.uint8)
    return files.png(np.dstack([opaque, np.where(clear, 0, 255).astype(np.uint8)]))


def _half_clear(drawn: Pixels) -> bytes:
    """Return a grey PNG with alpha whose background is transparent."""
    clear = (drawn == WHITE).all(-1)
    return files.png(np.dstack([_grey(drawn), np.where(clear, 0, 255).astype(np.uint8)]))


WHITE = 255
_RED, _GREEN, _BLUE = (Scene("colour", (name,)) for name in ("red", "green", "blue"))
_BLACK_LEFT = Scene("place", ("black",), place="left", background=WHITE)
# Squares end at the borders of blocks of eight pixels.
_FLAT = Scene("colour", ("red",), 128, 128)
_TOP = Scene("place", ("blue",), place="top")
_KINDS: dict[
    str,
    tuple[Scene, Callable[[Pixels], bytes]] | tuple[Scene, Callable[[Pixels], bytes], str],
] = {
    "JPEG": (_FLAT, files.jpeg, JPEG),
    "WebP": (_GREEN, files.webp, WEBP),
    "GIF": (_BLUE, files.gif, GIF),
    "a JPEG turned by EXIF": (_TOP, _turned, JPEG),
    "a transparent PNG": (replace(_RED, background=WHITE), _see_through),
    "a transparent grey PNG": (_BLACK_LEFT, _half_clear),
    "a grey PNG": (_BLACK_LEFT, lambda drawn: files.png(_grey(drawn))),
    "a PNG of 16 bits": (_GREEN, lambda drawn: files.png(drawn, bits=16)),
    "a grey PNG of 16 bits": (_BLACK_LEFT, lambda drawn: files.png(_grey(drawn), bits=16)),
    "one pixel": (Scene("plain", ("red",), 1, 1), files.png),
    "a ribbon": (
        Scene("stripes", ("red", "green", "blue"), LONG_PIXELS, THIN_PIXELS), files.png,
    ),
    "a huge picture": (Scene("colour", ("blue",), HUGE_PIXELS, HUGE_PIXELS), files.png),
    "an uneven size": (Scene("colour", ("yellow",), 101, 77), files.png),
}  # fmt: skip
