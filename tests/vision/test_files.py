"""Pillow reads the written files back, as vLLM reads them."""

from __future__ import annotations

import base64
import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageOps

from pytest_vllm_gates.vision import encodings, files
from pytest_vllm_gates.vision.draw import pixels
from pytest_vllm_gates.vision.types import COLOURS, Scene

PICTURES = {picture.name: picture for picture in encodings.every()}
FORMATS = {"JPEG": "JPEG", "WebP": "WEBP", "GIF": "GIF", "a JPEG turned by EXIF": "JPEG"}
# Pillow cuts 16 bits of grey to 8 instead of scaling them, and what is transparent has no colour.
OTHERWISE = {"a grey PNG of 16 bits", "a transparent PNG", "a transparent grey PNG"}


def opened(url: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(url.partition(";base64,")[2])))


def on_white(image: Image.Image) -> Image.Image:
    seen = image.convert("RGBA")
    ground = Image.new("RGB", seen.size, (255, 255, 255))
    ground.paste(seen, mask=seen.split()[3])
    return ground


@pytest.mark.parametrize("name", PICTURES)
def test_a_file_has_its_format_and_size(name: str) -> None:
    image = opened(PICTURES[name].url)
    assert image.format == FORMATS.get(name, "PNG")
    assert ImageOps.exif_transpose(image).size == PICTURES[name].size


@pytest.mark.parametrize("name", sorted(PICTURES.keys() - OTHERWISE))
def test_a_file_shows_its_scene(name: str) -> None:
    image = ImageOps.exif_transpose(opened(PICTURES[name].url)).convert("RGB")
    assert np.array_equal(np.asarray(image), pixels(PICTURES[name].case.scenes[0]))


@pytest.mark.parametrize("name", ["a transparent PNG", "a transparent grey PNG"])
def test_a_transparent_picture_shows_its_scene_on_white(name: str) -> None:
    image = on_white(opened(PICTURES[name].url))
    assert np.array_equal(np.asarray(image), pixels(PICTURES[name].case.scenes[0]))


def test_sixteen_bits_are_the_eight_ones_scaled() -> None:
    image = np.asarray(opened(PICTURES["a grey PNG of 16 bits"].url))
    eight = np.asarray(opened(PICTURES["a grey PNG"].url))
    assert np.array_equal(image, eight.astype(int) * 257)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_jpeg_keeps_colours(colour: str) -> None:
    drawn = pixels(Scene("colour", (colour,), 64, 64))
    read = np.asarray(Image.open(io.BytesIO(files.jpeg(drawn))).convert("RGB"))
    assert np.abs(read.astype(int) - drawn).max() <= 3


def test_a_turned_jpeg_lies_on_its_side() -> None:
    picture = PICTURES["a JPEG turned by EXIF"]
    lying = np.asarray(opened(picture.url).convert("RGB"))
    left = replace(picture.case.scenes[0], place="left")
    assert np.array_equal(lying, pixels(left))


def test_every_kind_of_file_is_a_data_url() -> None:
    for picture in PICTURES.values():
        kind = picture.url.partition(";")[0]
        assert kind in {"data:image/png", "data:image/jpeg", "data:image/webp", "data:image/gif"}
