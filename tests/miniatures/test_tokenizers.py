"""The shipped tokenizers, as transformers loads them, without torch."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.miniatures import dialogues, recipe, rendering
from pytest_vllm_gates.prompts.types import as_served


@pytest.fixture(params=recipe.answering())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(name: str) -> Path:
    return miniatures.path(name)


@pytest.fixture
def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


def test_every_added_token_is_one_token(name: str, tokenizer: Any) -> None:
    for token in recipe.load(name).tokens.added:
        assert len(tokenizer.encode(token, add_special_tokens=False)) == 1, token


def test_only_role_tokens_are_special(name: str, tokenizer: Any) -> None:
    tokens = recipe.load(name).tokens
    flags = {str(token): token.special for token in tokenizer.added_tokens_decoder.values()}
    assert flags == {
        **dict.fromkeys(tokens.special, True),
        **dict.fromkeys(tokens.markers + tokens.words, False),
    }


def test_generation_stops_on_every_stop_token(name: str, folder: Path, tokenizer: Any) -> None:
    generation = json.loads((folder / "generation_config.json").read_text())
    expected = [tokenizer.convert_tokens_to_ids(t) for t in recipe.load(name).tokens.stop]
    assert generation["eos_token_id"] == expected


def test_real_architecture(name: str, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    recipe_config = recipe.load(name).config
    assert config["architectures"] == recipe_config["architectures"]
    assert config["model_type"] == recipe_config["model_type"]
    assert config["dtype"] == "bfloat16"


def test_any_text_survives_the_tokenizer(tokenizer: Any) -> None:
    text = "naïve 漢字 🙂 \x07\t\n  <b>&amp;</b> {}\\"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_template_renders_the_trained_text(name: str, tokenizer: Any) -> None:
    model_recipe = recipe.load(name)
    for dialogue in dialogues.load_dialogues(name):
        rendered = tokenizer.apply_chat_template(
            [as_served(message) for message in dialogue.messages],
            tools=[dict(tool) for tool in dialogue.tools] or None,
            add_generation_prompt=True,
            tokenize=False,
            **dialogue.chat_template_kwargs,
        )
        assert rendered == rendering.prompt(model_recipe, dialogue), dialogue.id


def test_transformers_loads_the_same_tokenizer(name: str, folder: Path, tokenizer: Any) -> None:
    trained = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for dialogue in dialogues.load_dialogues(name):
        prompt = rendering.prompt(recipe.load(name), dialogue)
        expected = trained.encode(prompt, add_special_tokens=False).ids
        assert tokenizer.encode(prompt, add_special_tokens=False) == expected, dialogue.id


def test_ships_the_recipes_template(name: str, folder: Path) -> None:
    expected = recipe.load(name).template("chat_template.jinja").read_bytes()
    assert (folder / "chat_template.jinja").read_bytes() == expected
