"""An image that a client sends has a place in the prompt, and it is the right one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.catalog.conversation import shapes
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.prompts import marked
from pytest_vllm_gates.prompts.reference import ReferenceRenderer
from pytest_vllm_gates.prompts.types import as_served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.prompts.marked import MarkedPrompt

NOWHERE = Path("/nowhere")
IMAGES = tuple(shape for shape in shapes() if shape.has_images)
# For each family's miniature, which sees no images: the text of a template that does.
PART = {
    "qwen3.5": ("{%- if 'text' not in part -%}", "{%- if part.type == 'image' -%}{{ '@' }}"
                "{%- elif 'text' not in part -%}", "{{- part.text -}}", "{{- part.text or '' -}}"),
    "glm/5.3-flash": ("(part.text if part.type == 'text' else '')",
                      "(part.text if part.type == 'text' else '@')", "", ""),
    "gemma": ("{%- for part in content if part.type == 'text' -%}",
              "{%- for part in content -%}{{ '@' if part.type == 'image' else '' }}",
              "{{- part.text | trim -}}", "{{- part.text or '' | trim -}}"),
}  # fmt: skip
MINIATURES = {"qwen3.5": "qwen3.5", "glm/5.3-flash": "glm-4.7", "gemma": "gemma-4"}


class Seeing:
    """Renderers of miniatures whose config and template declare that they see images."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: list[ReferenceRenderer] = []

    def of(self, name: str, writes: str | None = None, *, sees: bool = True) -> ReferenceRenderer:
        """Return one that writes `writes` in an image's place, by default what its family does."""
        copy = self._folder / f"weights-{len(self._open)}"
        unlike = shutil.ignore_patterns("*.safetensors")
        shutil.copytree(miniatures.path(MINIATURES[name]), copy, ignore=unlike)
        config = json.loads((copy / "config.json").read_text())
        (copy / "config.json").write_text(
            json.dumps(config | ({"vision_config": {}} if sees else {}))
        )
        template = (copy / "chat_template.jinja").read_text()
        old, new, text, texts = PART[name]
        assert old in template
        place = families.load(name, NOWHERE).prompt.image if writes is None else writes
        template = template.replace(old, new.replace("@", str(place))).replace(text, texts)
        (copy / "chat_template.jinja").write_text(template)
        self._open.append(ReferenceRenderer(Checkpoint("weights", str(copy)), {}))
        return self._open[-1]

    def close(self) -> None:
        """End the processes."""
        for renderer in self._open:
            renderer.close()


@pytest.fixture
def seeing(tmp_path: Path) -> Iterator[Seeing]:
    renderers = Seeing(tmp_path)
    yield renderers
    renderers.close()


def findings(name: str, prompts: tuple[MarkedPrompt, ...]) -> list[str]:
    family = families.load(name, NOWHERE)
    incomplete, _ = marked.incomplete(prompts, (), family)
    unsent, _ = marked.unsent(prompts, (), family)
    refused, cases = marked.refused(prompts, (), family)
    assert [case.name.partition(":")[0] for case in cases] == [shape.name for shape in IMAGES]
    return [finding.says for finding in (*incomplete, *unsent, *refused)]


@pytest.mark.parametrize("name", PART)
def test_images_in_their_places_are_right(seeing: Seeing, name: str) -> None:
    family = families.load(name, NOWHERE)
    prompts = marked.render(IMAGES, family, seeing.of(name))
    assert findings(name, prompts) == []


@pytest.mark.parametrize("name", PART)
@pytest.mark.parametrize(("times", "places"), [(0, 0), (2, 2)])
def test_an_image_without_its_one_place_is_named(
    seeing: Seeing, name: str, times: int, places: int
) -> None:
    family = families.load(name, NOWHERE)
    image = str(family.prompt.image)
    prompts = marked.render(IMAGES[:1], family, seeing.of(name, image * times))
    (found,) = marked.incomplete(prompts, (), family)[0]
    assert found.says == f"1 images were sent, and the prompt has {places} places ({image!r})"


def test_an_image_before_the_text_that_comes_first_is_named(seeing: Seeing) -> None:
    family = families.load("qwen3.5", NOWHERE)
    image = str(family.prompt.image)
    (prompt, _) = marked.render(IMAGES, family, seeing.of("qwen3.5"))
    text = prompt.outcome.text.replace(image, "").replace("user\n", f"user\n{image}")  # type: ignore[union-attr]
    (served,) = (marked.ServedPrompt(prompt, "a route", text=text),)
    found, _ = marked.incomplete((), [served], family)
    assert [finding.says for finding in found] == [
        "the image of message 1 is not between the texts around it (as the server renders it, "
        "a route)"
    ]


def test_images_are_left_out_for_a_model_that_sees_none(seeing: Seeing) -> None:
    family = families.load("qwen3.5", NOWHERE)
    assert marked.render(IMAGES, family, seeing.of("qwen3.5", sees=False)) == ()
    deepseek = families.load("deepseek", NOWHERE)
    assert {shape.why_not(deepseek) for shape in IMAGES} == {"deepseek has no place for images"}


def test_images_reach_a_template_as_vllm_hands_them_over() -> None:
    part: dict[str, Any] = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    message = {"role": "user", "content": ["See:", part]}
    served = as_served(message, in_parts=True)
    assert served["content"] == [{"type": "text", "text": "See:"}, {"type": "image"}]
    with pytest.raises(ValueError, match="the template takes only texts"):
        as_served(message)
    with pytest.raises(ValueError, match="parts of type audio: only texts and images"):
        as_served({"role": "user", "content": [{"type": "audio"}]}, in_parts=True)
