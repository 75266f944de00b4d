"""Messages that a server has to refuse: broken files, too many images, other media, addresses."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.vision import files, questions
from pytest_vllm_gates.vision.draw import pixels
from pytest_vllm_gates.vision.encodings import PNG, png_url
from pytest_vllm_gates.vision.types import Scene

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.catalog.family import Family

    Refused = tuple[str, str, list[dict[str, Any]]]

FILE, LIMIT, MEDIA, ADDRESS, PRIVATE = "bad file", "limit", "other media", "address", "private"
DEFAULT_MOST = 999
"""The images that vLLM allows in a prompt by default: too many to send."""
MOST_SENT = 64
SCENE = Scene("colour", ("red",))


def limit(serve: Mapping[str, Any]) -> int:
    """Return how many images a prompt may have, by the server's flags."""
    limits = serve.get("limit_mm_per_prompt")
    allowed = limits.get("image", DEFAULT_MOST) if isinstance(limits, dict) else DEFAULT_MOST
    if isinstance(allowed, dict):
        allowed = allowed.get("count", DEFAULT_MOST)
    return allowed if isinstance(allowed, int) else DEFAULT_MOST


def bad_files(serve: Mapping[str, Any], rule: str = "patches") -> Iterator[Refused]:
    """Yield images that cannot be read, and one image too many, as group, name and messages.

    `rule` is how an image's size decides its tokens. One a thousand times as wide as high is
    refused if it is cut into patches unscaled (transformers 5.19.0, `smart_resize`), not if every
    image gets one size.
    """
    whole = files.png(pixels(SCENE))
    texts = {
        "half a picture": files.data_url(whole[: len(whole) // 2], PNG),
        "base64 cut short": png_url(SCENE)[:-7],
        "not base64": "data:image/png;base64,@@@@",
        "no comma": "data:image/png;base64",
        "not encoded as base64": "data:image/png,%89PNG",
        "no picture at all": files.data_url(b"these bytes are no picture", PNG),
        "nothing": "data:image/png;base64,",
        "an SVG": files.data_url(b'<svg xmlns="http://www.w3.org/2000/svg"/>', "image/svg+xml"),
        "a PDF": files.data_url(b"%PDF-1.7\n%%EOF", "application/pdf"),
    }
    if rule in {"patches", "frames"}:
        texts["a thread of a picture"] = png_url(Scene("plain", ("red",), 1000, 1))
    for name, url in texts.items():
        yield FILE, name, [questions.user([url], questions.question("colour"))]
    most = limit(serve)
    if most <= MOST_SENT:
        urls = [png_url(SCENE)] * (most + 1)
        yield LIMIT, f"{most + 1} images", [questions.user(urls, questions.question("colour"))]


def other_media(family: Family, serve: Mapping[str, Any]) -> Iterator[Refused]:
    """Yield a video and a sound if the server takes none."""
    limits = serve.get("limit_mm_per_prompt")
    limits = limits if isinstance(limits, dict) else {}
    question = {"type": "text", "text": "What is this?"}
    vision = family.vision
    if vision is None or not vision.video or limits.get("video") == 0:
        part = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}
        yield MEDIA, "a video", [{"role": "user", "content": [part, question]}]
    if vision is None or not vision.audio or limits.get("audio") == 0:
        sound = {"data": "AAAA", "format": "wav"}
        part = {"type": "input_audio", "input_audio": sound}
        yield MEDIA, "a sound", [{"role": "user", "content": [part, question]}]


def addresses() -> Iterator[Refused]:
    """Yield addresses without a picture."""
    texts = {
        "a port where nobody listens": f"http://127.0.0.1:{_closed_port()}/picture.png",
        "a file of the server's": "file:///etc/hostname",
        "a scheme that is none": "gopher://127.0.0.1/picture.png",
        "a name alone": "picture.png",
    }
    for name, url in texts.items():
        yield ADDRESS, name, [questions.user([url], questions.question("colour"))]


def private_address(url: str) -> Refused:
    """Return a request for a picture on the server's own machine."""
    message = questions.user([url], questions.question("colour"))
    return PRIVATE, "an address of the server's own machine", [message]


def picture_for_text_models() -> list[dict[str, Any]]:
    """Return the messages that a text-only model has to refuse."""
    return [questions.user([png_url(SCENE)], questions.question("colour"))]


def _closed_port() -> int:
    """Return a port of this machine on which nobody listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
