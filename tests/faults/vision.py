"""Servers that show a model other pictures than were sent: the vision gate's own checks fail."""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from faults.exchange import CHAT
from faults.fault import Faults
from pytest_vllm_gates.client.http import RENDER
from pytest_vllm_gates.vision import cases, files, questions, scored
from pytest_vllm_gates.vision.draw import pixels
from pytest_vllm_gates.vision.encodings import PNG, png_url
from pytest_vllm_gates.vision.types import Scene

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faults.exchange import Exchange

FAULTS = Faults("vision")
DECIDES = "the_picture_decides"
DETAILS = "details_are_seen"
FILES = "every_kind_of_file_is_seen"
SEVERAL = "several_pictures_keep_their_order"
CALL = "a_call_holds_what_is_seen"
STREAMED = "streamed_answers_see_the_same"
PROMPTS = "prompts_have_the_tokens_of_their_images"
SCORED = "pictures_are_scored_as_by_the_reference"
CACHE = "the_cache_takes_no_picture_for_another"
COMPANY = "pictures_in_company_are_not_mixed_up"
BAD = "bad_pictures_are_refused"
MEDIA = "other_media_are_refused"
ADDRESSES = "addresses_are_not_fetched_at_will"
BLUE = Scene("colour", ("blue",))
JPEG_START, JPEG_EXIF = 2, b"\xff\xe1"

Part = dict[str, Any]


def contents(exchange: Exchange) -> Iterator[list[Part]]:
    """Yield the contents of messages that are lists of parts."""
    for message in exchange.body.get("messages") or ():
        if isinstance(message.get("content"), list):
            yield message["content"]


def pictures(exchange: Exchange) -> list[Part]:
    """Return the parts that are images, in order."""
    return [part for content in contents(exchange) for part in content if is_image(part)]


def is_image(part: Part) -> bool:
    """Return whether a part of a message is an image."""
    return part.get("type") == "image_url"


def url_of(part: Part) -> str:
    """Return where an image is."""
    return str(part["image_url"]["url"])


def show(part: Part, url: str) -> None:
    """Put another image in a part's place."""
    part["image_url"] = {"url": url}


def words(exchange: Exchange) -> str:
    """Return a request's messages without the images."""
    texts = [
        message["content"]
        if not isinstance(message.get("content"), list)
        else [part for part in message["content"] if not is_image(part)]
        for message in exchange.body.get("messages") or ()
    ]
    return json.dumps(texts)


def asks(exchange: Exchange, kind: str) -> bool:
    """Return whether the last question is of a kind."""
    return json.dumps(questions.question(kind)) in words(exchange)


# Pictures that the model does not see as they were sent.


@FAULTS.asked(CHAT, SEVERAL, "red, blue is to be seen, and the answer is", SCORED)
def swaps_images(exchange: Exchange) -> None:
    """The images of a message come in the other order."""
    for content in contents(exchange):
        images = [part for part in content if is_image(part)]
        urls = [url_of(part) for part in reversed(images)]
        if len({*urls}) > 1 and all(url.startswith("data:image/png") for url in urls):
            for part, url in zip(images, urls, strict=True):
                show(part, url)


@FAULTS.asked(CHAT, SEVERAL, "is to be seen, and the answer is", PROMPTS, SCORED)
def loses_the_second_image(exchange: Exchange) -> None:
    """Only the first of several images in a message is kept."""
    for content in contents(exchange):
        images = [part for part in content if is_image(part)]
        if 1 < len(images) <= 3:
            for part in images[1:]:
                content.remove(part)


@FAULTS.asked(CHAT, SEVERAL, "purple is to be seen", PROMPTS)
def drops_images_after_a_tool(exchange: Exchange) -> None:
    """The template has no place for an image after a tool's result."""
    roles = [message["role"] for message in exchange.body.get("messages") or ()]
    if "tool" in roles:
        for content in contents(exchange):
            content[:] = [part for part in content if not is_image(part)]


@FAULTS.asked(CHAT, SEVERAL, "green is to be seen, and the answer is")
def keeps_the_picture_of_the_first_turn(exchange: Exchange) -> None:
    """A later turn shows the picture of the first one."""
    images = pictures(exchange)
    turns = [content for content in contents(exchange) if any(map(is_image, content))]
    if len(turns) > 1:
        for part in images[1:]:
            show(part, url_of(images[0]))


@FAULTS.asked(
    CHAT, DECIDES, "is to be seen, and the answer is", DETAILS, FILES, SEVERAL, CALL, SCORED, CACHE,
    COMPANY,
)  # fmt: skip
def sees_one_picture_alone(exchange: Exchange) -> None:
    """Pictures are ignored: a blank one of each size is seen in their place."""
    for part in pictures(exchange):
        if url_of(part).startswith("data:image/png"):
            show(part, _of_size(part, Scene("plain", ("black",))) or url_of(part))


@FAULTS.asked(CHAT, DETAILS, "3 is to be seen, and the answer is")
def sees_too_little_of_a_digit(exchange: Exchange) -> None:
    """Thin lines are lost when a picture is resized: each digit is seen as another."""
    for part in pictures(exchange) if asks(exchange, "digit") else ():
        show(part, _of_size(part, Scene("digit", number=8, share=0.8)) or url_of(part))


@FAULTS.asked(CHAT, DETAILS, "left is to be seen, and the answer is")
def mirrors_pictures_with_two_squares(exchange: Exchange) -> None:
    """Left and right change places."""
    mirrored = {
        png_url(case.scenes[0]): png_url(
            replace(case.scenes[0], colours=case.scenes[0].colours[::-1])
        )
        for case in cases.DETAILS
        if case.kind == "which"
    }
    for part in pictures(exchange):
        show(part, mirrored.get(url_of(part), url_of(part)))


@FAULTS.asked(CHAT, CALL, "red is to be seen, and the call has")
def calls_for_another_picture(exchange: Exchange) -> None:
    """A request with tools gets another picture."""
    if asks(exchange, "call"):
        for part in pictures(exchange):
            show(part, _of_size(part, BLUE) or url_of(part))


@FAULTS.asked(CHAT, STREAMED, "content: whole 'red', streamed 'blue'")
def streams_another_picture(exchange: Exchange) -> None:
    """Streams get other pictures."""
    if exchange.streamed and asks(exchange, "colour"):
        images = pictures(exchange)
        if len(images) == 1:
            show(images[0], _of_size(images[0], BLUE) or url_of(images[0]))


# Files that are read wrongly.


@FAULTS.asked(CHAT, FILES, "red is to be seen, and the answer is 'blue'")
def reads_jpeg_as_bgr(exchange: Exchange) -> None:
    """A reader of JPEG gives blue for red."""
    for part in pictures(exchange):
        data = _data(part)
        if url_of(part).startswith("data:image/jpeg") and data[JPEG_START:4] != JPEG_EXIF:
            show(part, png_url(Scene("colour", ("blue",), 128, 128)))


@FAULTS.asked(CHAT, FILES, "top is to be seen, and the answer is")
def ignores_exif(exchange: Exchange) -> None:
    """A picture is not turned as its metadata requires."""
    for part in pictures(exchange):
        data = _data(part)
        if data[JPEG_START:4] == JPEG_EXIF:
            length = int.from_bytes(data[4:6], "big")
            show(part, _url(data[:JPEG_START] + data[4 + length :], "image/jpeg"))


@FAULTS.asked(CHAT, FILES, "left is to be seen, and the answer is")
def takes_what_is_clear_for_black(exchange: Exchange) -> None:
    """Alpha is dropped: a black square on a transparent ground is gone."""
    for part in pictures(exchange):
        data = _data(part)
        if data[:4] == b"\x89PNG" and data[25] == 4:
            show(part, png_url(Scene("plain", ("black",))))


@FAULTS.asked(CHAT, FILES, "is to be seen, and the answer is")
def cuts_sixteen_bits(exchange: Exchange) -> None:
    """The values of 16 bits are cut to 255: all is white."""
    for part in pictures(exchange):
        data = _data(part)
        if data[:4] == b"\x89PNG" and data[24:26] == b"\x10\2":
            show(part, png_url(Scene("place", ("black",), place="top", share=0.01)))


# Caches.


class Kept:
    """The memory of a broken cache, by run: a new text begins a new one."""

    def __init__(self) -> None:
        self._urls: dict[str, str] = {}
        self._lock = threading.Lock()

    def first(self, key: str, url: str) -> str:
        """Return the first image that was kept under a key."""
        with self._lock:
            return self._urls.setdefault(key, url)


_warm, _by_size = Kept(), Kept()


@FAULTS.asked(CHAT, CACHE, "is to be seen, and the answer is")
def keeps_the_picture_of_a_warm_prefix(exchange: Exchange) -> None:
    """After a known text, the picture of the first request is seen."""
    if cases.SHIFTED in words(exchange):
        for part in pictures(exchange):
            show(part, _warm.first(words(exchange) + _size(part), url_of(part)))


@FAULTS.asked(CHAT, DECIDES, "blue, red, green is to be seen", CACHE, COMPANY)
def tells_pictures_apart_by_size(exchange: Exchange) -> None:
    """The key of a picture is its size."""
    if asks(exchange, "stripes"):
        for part in pictures(exchange):
            if _size(part):
                show(part, _by_size.first(_size(part), url_of(part)))


@FAULTS.asked(CHAT, COMPANY, "is to be seen, and the answer is")
def mixes_pictures_up_in_company(exchange: Exchange) -> None:
    """Among many requests one gets the picture of another."""
    if asks(exchange, "stripes") and _size(next(iter(pictures(exchange)), {})):
        (part,) = pictures(exchange)
        nonces = [png_url(case.scenes[0]) for case in cases.NONCES]
        if url_of(part) in nonces and cases.SHIFTED not in words(exchange):
            show(part, nonces[nonces.index(url_of(part)) - 1])


# Prompts.


@FAULTS.asked(CHAT, PROMPTS, "prompt_tokens is ", SCORED)
def stretches_pictures_to_squares(exchange: Exchange) -> None:
    """Pictures are resized without their aspect."""
    for part in pictures(exchange):
        if asks(exchange, "colour") and url_of(part) == png_url(WIDE):
            show(part, png_url(Scene("colour", WIDE.colours)))


WIDE = Scene("colour", ("green",), 128, 96)


@FAULTS.told(RENDER, PROMPTS, "they differ from token")
def has_a_token_too_few(exchange: Exchange) -> None:
    """An image has one token less than features."""
    for event in exchange.events:
        for place in _places(event)[:1]:
            del event["token_ids"][place["offset"]]


@FAULTS.told(RENDER, PROMPTS, "images are placed at")
def places_images_one_token_late(exchange: Exchange) -> None:
    """The place of an image is off by one."""
    for event in exchange.events:
        for place in _places(event):
            place["offset"] += 1


@FAULTS.told(RENDER, PROMPTS, "two images have the identity")
def cuts_the_hash_of_images(exchange: Exchange) -> None:
    """Too little of an image's hash is kept."""
    for event in exchange.events:
        hashes = ((event.get("features") or {}).get("mm_hashes") or {}).get("image") or []
        hashes[:] = ["0" for _ in hashes]


@FAULTS.told(CHAT, PROMPTS, "prompt_tokens is ", DETAILS, STREAMED)
def counts_no_images(exchange: Exchange) -> None:
    """The usage has the tokens of the text alone."""
    for event in exchange.events:
        if pictures(exchange) and not exchange.streamed and event.get("usage"):
            event["usage"]["prompt_tokens"] -= 4


@FAULTS.told(CHAT, STREAMED, "content: whole 'red', streamed '<|image_pad|>", DETAILS)
def streams_image_tokens_as_text(exchange: Exchange) -> None:
    """The token of images gets into the text of streams."""
    if exchange.streamed:
        for choice in exchange.choices:
            if choice["delta"].get("content"):
                choice["delta"]["content"] = "<|image_pad|>" + choice["delta"]["content"]
                return


# Scores.


@FAULTS.asked(CHAT, SCORED, "answer: another token from output position")
def normalises_with_the_wrong_sign(exchange: Exchange) -> None:
    """In requests for scores, bright parts of a picture are dark."""
    if exchange.body.get("prompt_logprobs") is not None:
        for part in pictures(exchange):
            if scene := SCORED_SCENES.get(url_of(part)):
                show(part, files.data_url(files.png(255 - pixels(scene)), PNG))


SCORED_SCENES = {png_url(scene): scene for case in scored.CASES for scene in case.scenes}


# Refusals.


@FAULTS.asked(CHAT, BAD, "answered 200")
def keeps_no_limit(exchange: Exchange) -> None:
    """Images beyond the limit are silently left out."""
    for content in contents(exchange):
        images = [part for part in content if is_image(part)]
        for part in images[4:]:
            content.remove(part)


@FAULTS.asked(CHAT, BAD, "answered 200")
def takes_half_a_picture(exchange: Exchange) -> None:
    """The missing part of a file is filled up."""
    for part in pictures(exchange):
        data = _data(part)
        if data[:4] == b"\x89PNG" and b"IEND" not in data:
            show(part, png_url(Scene("colour", ("red",))))


@FAULTS.told(CHAT, BAD, "answered 500", refused=True)
def takes_a_bad_file_for_its_own_fault(exchange: Exchange) -> None:
    """A file that cannot be read is an internal error."""
    if any(url_of(part).startswith("data:application/pdf") for part in pictures(exchange)):
        exchange.status = 500


@FAULTS.told(CHAT, BAD, "without an error", refused=True)
def refuses_without_a_word(exchange: Exchange) -> None:
    """A refusal has no error in it."""
    if any(url_of(part).startswith("data:application/pdf") for part in pictures(exchange)):
        exchange.events = [{"detail": "no"}]


@FAULTS.asked(CHAT, MEDIA, "answered 200")
def leaves_sounds_out(exchange: Exchange) -> None:
    """A sound that is not served is silently left out."""
    for content in contents(exchange):
        content[:] = [part for part in content if part.get("type") != "input_audio"]


@FAULTS.asked(CHAT, ADDRESSES, "answered 200")
def reads_files_of_the_server(exchange: Exchange) -> None:
    """Any file of the server is read."""
    for part in pictures(exchange):
        if url_of(part).startswith("file:"):
            show(part, png_url(Scene("colour", ("red",))))


def _data(part: Part) -> bytes:
    """Return the bytes of an image in a data URL, as many as can be read."""
    text = url_of(part).partition(";base64,")[2]
    try:
        return base64.b64decode(text)
    except ValueError:
        return b""


def _url(data: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _size(part: Part) -> str:
    """Return width and height of a whole PNG, as text; empty for anything else."""
    data = _data(part) if part else b""
    if data[:4] != b"\x89PNG" or b"IEND" not in data:
        return ""
    return f"{int.from_bytes(data[16:20], 'big')}x{int.from_bytes(data[20:24], 'big')}"


def _of_size(part: Part, scene: Scene) -> str:
    """Return another scene in an image's own size; empty where that is not known."""
    size = _size(part)
    if not size:
        return ""
    width, height = map(int, size.split("x"))
    return png_url(replace(scene, width=width, height=height))


def _places(event: Part) -> list[Part]:
    features = event.get("features") or {}
    return list((features.get("mm_placeholders") or {}).get("image") or ())
