"""The encoder a lane's vLLM carries renders in the lane's interpreter, and nothing else is run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from prompts.encoder_site import MODULE, interpreter
from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.goldens import Refused
from pytest_vllm_gates.prompts import encoder as encoders
from pytest_vllm_gates.prompts.encoder import Encoder
from pytest_vllm_gates.prompts.reference import ReferenceRenderer
from pytest_vllm_gates.prompts.types import Endless

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def asked(*texts: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text} for text in texts], **more}


@pytest.fixture
def python(tmp_path: Path) -> Path:
    return interpreter(tmp_path)


@pytest.fixture
def encoder(python: Path) -> Iterator[Encoder]:
    running = Encoder(MODULE, python, {})
    yield running
    running.close()


def test_one_process_writes_prompt_after_prompt(encoder: Encoder) -> None:
    assert encoder.write(asked("Hi")) == "[user:Hi]"
    assert encoder.write(asked("naïve 日本\u2028", "b\n")) == "[user:naïve 日本\u2028][user:b\n]"


def test_switches_and_tools_reach_the_encoder(encoder: Encoder) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    body = asked("Hi", tools=[tool], chat_template_kwargs={"thinking": True})
    assert encoder.write(body) == "[tools:1][user:Hi]<think>"


def test_the_servers_defaults_reach_the_encoder(python: Path) -> None:
    encoder = Encoder(MODULE, python, {"default_chat_template_kwargs": {"thinking": True}})
    assert encoder.write(asked("Hi")) == "[user:Hi]<think>"
    encoder.close()


def test_the_encoder_takes_parts_as_vllms_renderer_does(tmp_path: Path) -> None:
    encoder = Encoder(MODULE, interpreter(tmp_path, "openai"), {})
    assert encoder.write(asked("Hi")) == "[user:[{'type': 'text', 'text': 'Hi'}]]"
    encoder.close()


def test_an_encoders_error_is_a_refusal(encoder: Encoder) -> None:
    with pytest.raises(Refused, match="no such turn"):
        encoder.write(asked("refuse"))
    assert encoder.write(asked("Hi")) == "[user:Hi]"


def test_an_endless_prompt_does_not_stop_the_next_one(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoders, "RENDER_LIMIT_S", 0.3)
    with pytest.raises(Endless, match=r"toy_encoding was still busy .* does it loop\?"):
        encoder.write(asked("loop"))
    monkeypatch.undo()
    assert encoder.write(asked("Hi")) == "[user:Hi]"


def test_an_encoder_that_dies_is_a_user_error_with_its_words(encoder: Encoder) -> None:
    with pytest.raises(UserError, match="out of memory"):
        encoder.write(asked("die"))
    assert encoder.write(asked("Hi")) == "[user:Hi]"


def test_the_encoders_files_are_locked(encoder: Encoder, tmp_path: Path) -> None:
    before = encoder.sources()
    assert set(before) == {"vllm/tokenizers/toy_encoding.py", "vllm/tokenizers/toy.py"}
    edited = tmp_path / "site" / "vllm" / "tokenizers" / "toy_encoding.py"
    edited.write_text(edited.read_text() + "# better\n")
    assert encoder.sources() != before


def test_a_reference_renders_with_an_encoder_only(encoder: Encoder) -> None:
    checkpoint = Checkpoint(name="weights", source=str(miniatures.path("deepseek-v3.1")))
    reference = ReferenceRenderer(checkpoint, {}, encoder)
    prompt = reference.render(asked("Hi"))
    assert prompt.text == "".join(prompt.pieces) == "[user:Hi]"
    assert "chat template" not in reference.locked_parts()
    assert "vllm/tokenizers/toy.py" in reference.locked_parts()
    assert isinstance(reference.outcome(asked("refuse")), Refused)


def test_an_interpreter_without_vllm_is_a_user_error(python: Path, tmp_path: Path) -> None:
    (tmp_path / "site" / "vllm").rename(tmp_path / "site" / "other")
    with pytest.raises(UserError, match=r"toy_encoding cannot be used: this interpreter has no"):
        Encoder(MODULE, python, {})


def test_a_vllm_without_the_encoder_is_a_user_error(python: Path) -> None:
    with pytest.raises(UserError, match=r"this vLLM has no .*tokenizers/toy9_encoding.py and no"):
        Encoder("vllm.tokenizers.toy9_encoding", python, {})


def test_an_encoder_that_cannot_load_is_a_user_error(python: Path, tmp_path: Path) -> None:
    (tmp_path / "site" / "vllm" / "tokenizers" / "toy_encoding.py").write_text("1 / 0\n")
    with pytest.raises(UserError, match=r"cannot be used: ZeroDivisionError"):
        Encoder(MODULE, python, {})


def test_a_missing_interpreter_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be used: .*No such file"):
        Encoder(MODULE, tmp_path / "nowhere", {})


def test_this_interpreters_modules_are_left_alone(encoder: Encoder) -> None:
    encoder.write(asked("Hi"))
    assert not [name for name in sys.modules if name.startswith("vllm.")]
