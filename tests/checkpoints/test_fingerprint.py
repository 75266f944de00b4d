"""Checksums of a checkpoint's template, tokenizer and config."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.checkpoints import fingerprint

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "weights"
    write(place)
    return place


def write(place: Path) -> None:
    place.mkdir(parents=True)
    (place / "config.json").write_text('{"model_type": "glm"}')
    (place / "tokenizer.json").write_text("{}")
    (place / "tokenizer_config.json").write_text(
        '{"eos_token": "</s>", "chat_template": "{{ a }}"}'
    )


def of(place: Path, **serve: object) -> fingerprint.Fingerprint:
    return fingerprint.of(Checkpoint("weights", str(place)), serve)


def changed(before: fingerprint.Fingerprint, after: fingerprint.Fingerprint) -> set[str]:
    return {
        name
        for name in ("template", "tokenizer", "config", "revision")
        if getattr(before, name) != getattr(after, name)
    }


@pytest.mark.parametrize(
    ("file", "text", "part"),
    [
        ("tokenizer_config.json", '{"eos_token": "</s>", "chat_template": "{{ b }}"}', "template"),
        ("chat_template.jinja", "{{ b }}", "template"),
        ("additional_chat_templates/tool.jinja", "{{ c }}", "template"),
        ("tokenizer_config.json", '{"eos_token": "<s>", "chat_template": "{{ a }}"}', "tokenizer"),
        ("tokenizer.json", '{"added": 1}', "tokenizer"),
        ("special_tokens_map.json", "{}", "tokenizer"),
        ("config.json", '{"model_type": "gemma"}', "config"),
        ("generation_config.json", '{"temperature": 1}', "config"),
    ],
)
def test_change_shows_only_in_its_own_part(folder: Path, file: str, text: str, part: str) -> None:
    before = of(folder)
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(text)
    assert changed(before, of(folder)) == {part}


def test_weights_are_not_in_the_fingerprint(folder: Path) -> None:
    before = of(folder)
    (folder / "model.safetensors").write_text("weights")
    assert of(folder) == before


def test_template_in_its_own_file_is_the_same(folder: Path) -> None:
    before = of(folder)
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    (folder / "chat_template.jinja").write_text("{{ a }}")
    assert of(folder) == before


def test_a_folder_without_a_template_has_none(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("{}")
    assert of(folder).template == "none"


def test_template_flag_replaces_the_template(folder: Path) -> None:
    template = folder.parent / "own.jinja"
    template.write_text("{{ own }}")
    prints = of(folder, chat_template=str(template))
    assert changed(of(folder), prints) == {"template"}
    template.write_text("{{ changed }}")
    assert changed(prints, of(folder, chat_template=str(template))) == {"template"}


def test_tokenizer_flag_replaces_the_tokenizer(folder: Path) -> None:
    write(folder.parent / "other")
    (folder.parent / "other" / "tokenizer.json").write_text('{"other": 1}')
    assert changed(of(folder), of(folder, tokenizer=str(folder.parent / "other"))) == {"tokenizer"}


def test_hub_checkpoint_is_read_from_the_cache_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants  # noqa: PLC0415 - only here

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    checkpoint = Checkpoint("glm", "org/glm")
    assert fingerprint.of(checkpoint, {}) == fingerprint.Fingerprint()
    repository = tmp_path / "models--org--glm"
    write(repository / "snapshots" / "abc123")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc123")
    prints = fingerprint.of(checkpoint, {})
    assert prints.revision == "abc123"
    assert prints.tokenizer and prints.template
    # In a cache that may lack files, a missing template is not evidence of its absence.
    (repository / "snapshots" / "abc123" / "tokenizer_config.json").write_text("{}")
    assert fingerprint.of(checkpoint, {}).template is None


def test_config_that_is_not_json_has_no_template(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("{")
    assert of(folder).template == "none"
    (folder / "tokenizer_config.json").write_text(json.dumps([1]))
    assert of(folder).template == "none"


def test_folder_files_are_listed_by_path(tmp_path: Path) -> None:
    (tmp_path / "repairs/__pycache__").mkdir(parents=True)
    (tmp_path / "repairs/one.py").write_text("1")
    (tmp_path / "repairs/__pycache__/one.pyc").write_text("2")
    assert [*fingerprint.folder(tmp_path)] == ["repairs/one.py"]
