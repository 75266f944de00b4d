"""The walk sends a server all requests, and the checks find the server's faults.

The server sees by the pictures' own bytes, and answers what vLLM 0.32.0 answered where it refuses.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from servers.scripted import ScriptedServer

from pytest_vllm_gates.catalog import family as families, known_defects
from pytest_vllm_gates.client.http import CHAT, RENDER
from pytest_vllm_gates.vision import cases, checks, encodings, refused
from pytest_vllm_gates.vision.walk import (
    CACHE,
    CALLS,
    COMPANY,
    DETAILS,
    FILES,
    ORDERS,
    SEEN,
    UNSEEN,
    VisionWalk,
)

if TYPE_CHECKING:
    from pytest_vllm_gates.vision.seen import SightWalk
    from pytest_vllm_gates.vision.types import Scene

VL = families.load("qwen3-vl", Path("/nowhere"))
SERVE = {"limit_mm_per_prompt": {"image": 4, "video": 0}}
SCENES: dict[str, Scene] = {
    encodings.png_url(scene): scene
    for case in (*cases.SEEN, *cases.DETAILS, *cases.ORDERS, *cases.CALLS, *cases.NONCES)
    for scene in case.scenes
} | {picture.url: picture.case.scenes[0] for picture in encodings.every()}
# vLLM 0.32.0's answer to each, observed on its renderer.
ANSWERED: dict[str, tuple[int, str]] = {
    "half a picture": (400, "Failed to load image: image file is truncated"),
    "base64 cut short": (400, "Non-base64 digit found"),
    "not base64": (400, "Non-base64 digit found"),
    "no comma": (400, "Invalid data URL 'data:image/png;base64': missing ',' separator."),
    "not encoded as base64": (501, "Only base64 data URLs are supported for now."),
    "no picture at all": (400, "Failed to load image: cannot identify image file"),
    "nothing": (400, "Failed to load image: cannot identify image file"),
    "an SVG": (400, "Failed to load image: cannot identify image file"),
    "a PDF": (400, "Failed to load image: cannot identify image file"),
    "a thread of a picture": (400, "Failed to apply Qwen3VLProcessor"),
    "5 images": (400, "At most 4 image(s) may be provided in one prompt. (parameter=image)"),
    "a video": (400, "At most 0 video(s) may be provided in one prompt. (parameter=video)"),
    "a sound": (400, "At most 0 audio(s) may be provided in one prompt. (parameter=audio)"),
    "a port where nobody listens": (
        500, "Cannot connect to host 127.0.0.1:38003 ssl:default [Connect call failed ('127', 1)]",
    ),
    "a file of the server's": (
        500, "Cannot load local files without `--allowed-local-media-path`.",
    ),
    "a scheme that is none": (400, "The URL must be either a HTTP, data or file URL."),
    "a name alone": (400, "The URL must be either a HTTP, data or file URL."),
}  # fmt: skip


class Seeing:
    """Answers questions about pictures as a healthy model does; a subclass gets something wrong."""

    renders = True

    def __init__(self) -> None:
        self._refused = iter(ANSWERED.values())
        self._lock = threading.Lock()

    def scenes(self, body: Any) -> list[Scene] | None:
        """Return the pictures that it sees, None where one of them is none."""
        urls = _urls(body)
        return [SCENES[url] for url in urls] if all(url in SCENES for url in urls) else None

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        """Return the answer to a request."""
        if path == RENDER:
            return (200, _rendered(body)) if self.renders else (403, {"detail": "Forbidden"})
        assert path == CHAT
        scenes = self.scenes(body)
        if scenes is None or len(_urls(body)) > 4 or _has_other_media(body):
            with self._lock:
                status, message = next(self._refused, (400, "no"))
            return status, {"error": {"message": message, "type": "x", "code": status}}
        return _answered(body, self.said(body, scenes))

    def said(self, body: Any, scenes: list[Scene]) -> str:
        """Return the words of an answer."""
        if not scenes:
            return "I see no picture."
        text = body["messages"][-1]["content"][-1]["text"]
        if "in order" in text:
            return ", ".join(word for scene in scenes for word in scene.words)
        return ", ".join((scenes[0] if "first" in text else scenes[-1]).words)


def walked(seeing: Seeing, untaught: tuple[str, ...] = ()) -> SightWalk:
    server = ScriptedServer(seeing.answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        return VisionWalk(server.endpoint, VL, SERVE, 16, untaught).run(lambda *_: None)
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def healthy() -> SightWalk:
    return walked(Seeing())


def test_a_model_that_sees_is_right_everywhere(healthy: SightWalk) -> None:
    counts = {SEEN: 10, DETAILS: 10, FILES: 13, ORDERS: 7, CALLS: 2, CACHE: 20}
    assert {group: len(healthy.of(group)) for group in counts} == counts
    seen = [each for each in healthy.seen if each.group != UNSEEN]
    assert [finding.says for finding in checks.answers(seen)] == []
    assert [finding.says for finding in checks.streams(seen)] == []
    assert [*checks.identities(seen)] == []
    assert [*checks.unseen(*healthy.of(UNSEEN))] == []
    assert len(healthy.of(COMPANY)) == len(cases.NONCES)


def test_streams_are_requested_where_order_and_calls_count(healthy: SightWalk) -> None:
    assert all(each.streamed for each in healthy.of(SEEN, DETAILS, ORDERS, CALLS))
    assert not any(each.streamed for each in healthy.of(FILES, CACHE, COMPANY))


def test_prompts_are_rendered_with_their_places(healthy: SightWalk) -> None:
    for each in healthy.of(SEEN, FILES, ORDERS, CALLS):
        assert each.rendered
        assert len(each.rendered.places) == len(each.sizes)


def test_details_are_requested_without_rendering(healthy: SightWalk) -> None:
    assert not any(each.rendered for each in healthy.of(DETAILS))


@pytest.mark.parametrize(
    ("untaught", "asked"),
    [
        (("digit",), {"count", "which"}),
        (("count", "which"), {"digit"}),
        (("digit", "count", "which"), set()),
    ],
)
def test_questions_that_a_miniature_was_not_taught_are_left_out(
    untaught: tuple[str, ...], asked: set[str]
) -> None:
    walk = walked(Seeing(), untaught)
    assert {each.case.kind for each in walk.of(DETAILS)} == asked
    assert len(walk.of(SEEN)) == len(cases.SEEN)


def test_a_server_that_does_not_render_gets_one_request() -> None:
    seeing = Seeing()
    seeing.renders = False
    walk = walked(seeing)
    assert not any(each.rendered for each in walk.seen)


def test_vllms_answers_are_known_defects_or_right(healthy: SightWalk) -> None:
    private = [each for each in healthy.refused if each.group == refused.PRIVATE]
    assert [each.name for each in healthy.refused if each not in private] == [*ANSWERED]
    defects = known_defects.load_all(Path("/nowhere"))
    for check, groups, known in (
        ("bad_pictures_are_refused", {refused.FILE, refused.LIMIT}, {"not encoded as base64"}),
        ("other_media_are_refused", {refused.MEDIA}, set()),
        (
            "addresses_are_not_fetched_at_will", {refused.ADDRESS},
            {"a port where nobody listens", "a file of the server's"},
        ),
    ):  # fmt: skip
        chosen = [each for each in healthy.refused if each.group in groups]
        findings = [*checks.refusals(chosen)]
        cases_ = [each.finding_case for each in chosen]
        found = known_defects.sort_findings(check, findings, cases_, defects, "0.32.0")
        assert [finding.says for finding in found.new] == []
        covered = {finding.case.traits["picture"] for _, each in found.known for finding in each}
        assert covered == known


@pytest.mark.parametrize(
    ("message", "reads_text_alone"),
    [
        ("At most 0 image(s) may be provided in one prompt. (parameter=image)", True),
        ("acme-1 is not a multimodal model", True),
        ("Failed to load image: cannot identify image file", False),
    ],
)
def test_a_server_without_images_is_recognised(message: str, *, reads_text_alone: bool) -> None:
    error = {"error": {"message": message, "type": "BadRequestError", "code": 400}}
    server = ScriptedServer(lambda *_: (400, error))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    reason = VisionWalk(server.endpoint, VL, SERVE, 16).why_no_images()
    server.shutdown()
    server.server_close()
    assert (message in reason) is reads_text_alone


class Blind(Seeing):
    """It sees the first picture that it was ever sent, whatever comes."""

    def said(self, body: Any, scenes: list[Scene]) -> str:
        with self._lock:
            self._first = getattr(self, "_first", None) or scenes
        return super().said(body, self._first if scenes else [])


class Forgetful(Seeing):
    """Among several pictures it sees the last one."""

    def said(self, body: Any, scenes: list[Scene]) -> str:
        return super().said(body, scenes[-1:])


class Miscounting(Seeing):
    """It sees one square more than there is."""

    def said(self, body: Any, scenes: list[Scene]) -> str:
        if scenes and scenes[0].kind == "count":
            return str(scenes[0].number + 1)
        return super().said(body, scenes)


class Cached(Seeing):
    """Behind a text that it knows it sees the picture that came first."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, list[Scene]] = {}

    def said(self, body: Any, scenes: list[Scene]) -> str:
        if body["messages"][0]["role"] == "system":
            question = json.dumps(body["messages"][-1]["content"][-1])
            scenes = self._kept.setdefault(question, scenes)
        return super().said(body, scenes)


@pytest.mark.parametrize(
    ("seeing", "groups"),
    [
        (Blind, {SEEN, DETAILS, FILES, ORDERS, CALLS, CACHE, COMPANY}),
        (Miscounting, {DETAILS}),
        (Forgetful, {ORDERS}),
        (Cached, {CACHE}),
    ],
)
def test_a_picture_that_is_not_seen_is_found(seeing: type[Seeing], groups: set[str]) -> None:
    walk = walked(seeing())
    seen = [each for each in walk.seen if each.group != UNSEEN]
    assert {finding.case.traits["group"] for finding in checks.answers(seen)} == groups


def _urls(body: Any) -> list[str]:
    return [part["image_url"]["url"] for part in _parts(body) if part["type"] == "image_url"]


def _has_other_media(body: Any) -> bool:
    return any(part["type"] in {"video_url", "input_audio"} for part in _parts(body))


def _parts(body: Any) -> list[dict[str, Any]]:
    contents = [message.get("content") for message in body["messages"]]
    return [part for content in contents if isinstance(content, list) for part in content]


def _answered(body: Any, said: str) -> tuple[int, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said}
    finish = "stop"
    if body.get("tools") and "Order paint" in json.dumps(body["messages"][-1]):
        function = {"name": "order_paint", "arguments": json.dumps({"colour": said})}
        calls = [{"id": "c", "type": "function", "index": 0, "function": function}]
        message, finish = {"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
    base = {"id": "x", "created": 1, "model": "alias", "usage": usage}
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return 200, {**base, "object": "chat.completion", "choices": [choice]}
    choice = {"index": 0, "delta": message, "finish_reason": finish}
    chunk = {**base, "object": "chat.completion.chunk", "choices": [choice]}
    return 200, [chunk]


def _rendered(body: Any) -> dict[str, Any]:
    urls = _urls(body)
    places = [{"offset": 3 * number, "length": 2} for number in range(len(urls))]
    features = {"mm_hashes": {"image": urls}, "mm_placeholders": {"image": places}}
    return {"token_ids": [1, 7, 7] * len(urls), "features": features if urls else None}


def test_sight_that_never_was_is_not_lost_by_a_refusal() -> None:
    class Dark(Seeing):
        def said(self, body: Any, scenes: list[Scene]) -> str:
            return "black" if scenes else super().said(body, scenes)

    assert [each.afterwards for each in walked(Dark()).refused if each.afterwards] == []


def test_sight_that_is_lost_by_a_refusal_is_reported() -> None:
    class Damaged(Seeing):
        def said(self, body: Any, scenes: list[Scene]) -> str:
            with self._lock:
                self._asked = getattr(self, "_asked", 0) + 1
            # By then the pictures of the first part have been seen.
            return "black" if self._asked > 100 else super().said(body, scenes)

    assert [each.afterwards for each in walked(Damaged()).refused if each.afterwards]
