"""Sends one family all requests about pictures, once for all checks of the gate."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import openai

from pytest_vllm_gates.client import form, http
from pytest_vllm_gates.client.chat import Chat
from pytest_vllm_gates.client.form import reading
from pytest_vllm_gates.vision import cases, encodings, refused
from pytest_vllm_gates.vision.ask import refusal
from pytest_vllm_gates.vision.checks import answer_fault
from pytest_vllm_gates.vision.listener import Listener
from pytest_vllm_gates.vision.seen import RenderedImages, SeenCase, SightWalk

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.answer import Answer
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.vision.cases import VisionCase

SEEN, DETAILS, FILES, ORDERS, CALLS = "picture", "detail", "file", "several", "call"
CACHE, UNSEEN, COMPANY = "cache", "no picture", "company"
ERROR_CHARACTERS = 300
MODALITY = "image"
NO_IMAGES = re.compile(
    r"^answered 4\d\d: .*(?:is not a multimodal model|At most 0 image)", re.DOTALL
)
"""vLLM's answer to an image if it takes only text."""


class VisionWalk:
    """Sends requests for one family to one server."""

    def __init__(
        self,
        endpoint: Endpoint,
        family: Family,
        serve: Mapping[str, Any],
        max_tokens: int,
        untaught: Collection[str] = (),
    ) -> None:
        """`serve` are the flags of the server, `max_tokens` the most that an answer has.

        `untaught` are kinds of questions that are left out.
        """
        self._endpoint = endpoint
        self._family = family
        self._serve = serve
        self._max_tokens = max_tokens
        self._untaught = untaught
        self._chat = Chat(endpoint, family)
        self._walk = SightWalk()
        self._renders = True

    def why_no_images(self) -> str:
        """Return why the server takes no images at all; empty if it does."""
        body = self._body(cases.SEEN[0], encodings.png_url)
        _, error = self._answer(self._chat.ask, body)
        return error if NO_IMAGES.search(error) else ""

    def run(self, step: Callable[[int, int], None]) -> SightWalk:
        """Send everything; `step` gets the number of parts done, and of all parts."""
        begun = time.monotonic()
        unseen = [cases.without_picture(case) for case in cases.SEEN[:1]]
        parts: list[Callable[[], None]] = [
            lambda: self._ask_all(UNSEEN, unseen),
            lambda: self._ask_all(SEEN, cases.SEEN, stream=True),
            self._ask_details,
            self._ask_files,
            lambda: self._ask_all(ORDERS, self._possible(cases.ORDERS), stream=True),
            lambda: self._ask_all(CALLS, self._possible(cases.CALLS), stream=True),
            # The same pictures after another text, and others in the same place.
            lambda: self._ask_all(CACHE, map(cases.shifted, cases.SEEN)),
            lambda: self._ask_all(CACHE, reversed(cases.SEEN)),
            lambda: self._ask_all(UNSEEN, unseen),
            lambda: self._ask_together(cases.NONCES),
            self._refuse,
        ]
        for done, part in enumerate(parts):
            step(done, len(parts))
            part()
        step(len(parts), len(parts))
        self._walk.seconds = time.monotonic() - begun
        self._chat.client.close()
        return self._walk

    def _possible(self, wanted: Iterable[VisionCase]) -> list[VisionCase]:
        """Return the cases that can be sent: not all families have tools."""
        return [
            case
            for case in wanted
            if (self._family.tools or not case.needs_tools) and case.kind not in self._untaught
        ]

    def _ask_details(self) -> None:
        self._ask_all(DETAILS, self._possible(cases.DETAILS), stream=True, render=False)

    def _ask_files(self) -> None:
        for picture in encodings.every():
            self._ask(FILES, picture.case, picture.url_of, name=picture.name)

    def _ask_all(
        self,
        group: str,
        wanted: Iterable[VisionCase],
        *,
        stream: bool = False,
        render: bool = True,
    ) -> None:
        for case in wanted:
            self._ask(group, case, encodings.png_url, stream=stream, render=render)

    def _ask(
        self,
        group: str,
        case: VisionCase,
        url: Callable[[Any], str],
        *,
        name: str = "",
        stream: bool = False,
        render: bool = True,
    ) -> None:
        body = self._body(case, url)
        whole, error = self._answer(self._chat.ask, body)
        streamed = self._answer(self._chat.stream, body)[0] if stream and whole else None
        self._walk.seen.append(
            SeenCase(
                name=name or case.name,
                group=group,
                case=case,
                request=body,
                sizes=tuple((scene.width, scene.height) for scene in case.scenes),
                whole=whole,
                streamed=streamed,
                rendered=self._rendered(body) if whole and render else None,
                error=error,
            )
        )

    def _ask_together(self, wanted: Iterable[VisionCase]) -> None:
        """Send all concurrently."""
        bodies = [(case, self._body(case, encodings.png_url)) for case in wanted]
        with ThreadPoolExecutor(len(bodies)) as pool:
            replies = list(pool.map(lambda each: self._answer(self._chat.ask, each[1]), bodies))
        for (case, body), (whole, error) in zip(bodies, replies, strict=True):
            sizes = tuple((scene.width, scene.height) for scene in case.scenes)
            self._walk.seen.append(
                SeenCase(case.name, COMPANY, case, body, sizes, whole, error=error)
            )

    def _body(self, case: VisionCase, url: Callable[[Any], str]) -> dict[str, Any]:
        return {**case.body(url), "max_tokens": self._max_tokens, "temperature": 0}

    def _answer(
        self, ask: Callable[[Mapping[str, Any]], Answer], body: Mapping[str, Any]
    ) -> tuple[Answer | None, str]:
        """Return an answer, and why none came."""
        self._walk.requests += 1
        try:
            return ask(body), ""
        except openai.APIStatusError as error:
            return None, f"answered {error.status_code}: {str(error)[:ERROR_CHARACTERS]}"
        except openai.APIError as error:
            return None, f"the answer is an error: {str(error)[:ERROR_CHARACTERS]}"
        except ValueError as error:
            return None, str(error)[:ERROR_CHARACTERS]

    def _rendered(self, body: Mapping[str, Any]) -> RenderedImages | None:
        """Return the prompt as the server renders it; None if it does not."""
        if not self._renders:
            return None
        self._walk.requests += 1
        reply = http.post(self._endpoint, http.RENDER, body)
        if reply.status_code in http.HIDDEN or not reply.is_success:
            self._renders = False
            return None
        with reading(f"the answer of {http.RENDER}"):
            told = reply.json()
            features = told.get("features") or {}
            places = (features.get("mm_placeholders") or {}).get(MODALITY) or ()
            hashes = (features.get("mm_hashes") or {}).get(MODALITY) or ()
            return RenderedImages(
                tuple(form.token_ids(told["token_ids"], "token_ids")),
                tuple(
                    (form.count(place["offset"], "offset"), form.count(place["length"], "length"))
                    for place in places
                ),
                tuple(form.text(each, "mm_hashes") for each in hashes),
            )

    def _refuse(self) -> None:
        vision = self._family.vision
        rule = vision.rule if vision else "patches"
        for group, name, messages in refused.bad_files(self._serve, rule):
            self._try(group, name, messages)
        for group, name, messages in refused.other_media(self._family, self._serve):
            self._try(group, name, messages)
        for group, name, messages in refused.addresses():
            self._try(group, name, messages)
        with Listener(encodings.png_bytes()) as listener:
            self._try(*refused.private_address(listener.url))
            self._walk.fetched += listener.paths

    def _try(self, group: str, name: str, messages: list[dict[str, Any]]) -> None:
        """Send what has to be refused, then check whether the server still sees."""
        self._walk.requests += 1
        self._walk.refused.append(refusal(self._endpoint, name, group, messages, self._afterwards))

    def _afterwards(self) -> str:
        """Return why the plainest picture is not seen now; empty if it is.

        If the server never saw it, the refused requests are not the cause.
        """
        case = cases.SEEN[0]
        whole, error = self._answer(self._chat.ask, self._body(case, encodings.png_url))
        if whole is None:
            return error
        before = next((each.whole for each in self._walk.of(SEEN) if each.case == case), None)
        never = before is not None and answer_fault(case, before)
        return "" if never else answer_fault(case, whole) or ""
