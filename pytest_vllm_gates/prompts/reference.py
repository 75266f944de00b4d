"""The reference rendering of a checkpoint's prompts, by its template and tokenizer; no torch."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, Protocol

from pytest_vllm_gates.checkpoints import prompt_files
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.goldens import Refused, Rendering
from pytest_vllm_gates.prompts.types import Endless

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint


def preload() -> None:
    """Import transformers, which takes seconds: called while a server starts anyway."""
    _reader()


class Writer(Protocol):
    """Writes prompts: the checkpoint's template, or the encoder of a lane's vLLM."""

    def write(self, body: Mapping[str, Any]) -> str:
        """Return the text of a request's prompt; raises `Refused` and `Endless`."""

    def sources(self) -> dict[str, bytes]:
        """Return the bytes of its files, by name."""

    def close(self) -> None:
        """End the process that it started, if any."""


class ReferenceRenderer:
    """Renders conversations as a checkpoint's files say.

    Raises `UserError` when they cannot be used: the message names the file and what is wrong.
    """

    def __init__(
        self, checkpoint: Checkpoint, serve: Mapping[str, Any], writer: Writer | None = None
    ) -> None:
        """Load the tokenizer, and the template as `serve`'s flags say, or take a `writer`."""
        from pytest_vllm_gates.prompts.template import Template  # noqa: PLC0415 - jinja2

        self.folder = prompt_files.folder(checkpoint)
        self._tokenizer = _load(checkpoint, str(self.folder))
        self._writer: Writer = writer or Template(checkpoint, self._tokenizer, serve)
        self._rendered: dict[str, Rendering | Refused | Endless] = {}

    def render(self, body: Mapping[str, Any]) -> Rendering:
        """Render a request's prompt as vLLM does.

        `body` is a chat completion request: messages, and where given tools,
        chat_template_kwargs, reasoning_effort and continue_final_message. Raises `Refused` when
        the template does, and `Endless` when it does not come to an end.
        """
        outcome = self.outcome(body)
        if isinstance(outcome, Refused):
            raise outcome
        return outcome

    def outcome(self, body: Mapping[str, Any]) -> Rendering | Refused:
        """Return a request's prompt or, where the template refuses, its refusal.

        Raises `Endless` when it does not come to an end; asked again, it is not tried again.
        """
        key = json.dumps(body)
        if key not in self._rendered:
            try:
                self._rendered[key] = self._tokenized(self._writer.write(body))
            except (Refused, Endless) as error:
                self._rendered[key] = error
        rendering = self._rendered[key]
        if isinstance(rendering, Endless):
            raise rendering
        return rendering

    def token_ids(self, text: str) -> list[int]:
        """Return the ids of a text that is only part of a prompt."""
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def piece(self, token_id: int) -> str:
        """Return the text one token stands for."""
        text: str = self._tokenizer.decode([token_id])
        return text

    def stop_ids(self) -> set[int]:
        """Return the token ids `generation_config.json` and `config.json` end an answer with."""
        stop_ids: set[int] = set()
        for name in ("generation_config.json", "config.json"):
            with contextlib.suppress(OSError, ValueError):
                config = json.loads((self.folder / name).read_text(encoding="utf-8"))
                eos = config.get("eos_token_id", config.get("text_config", {}).get("eos_token_id"))
                stop_ids |= set(eos) if isinstance(eos, list) else {eos} - {None}
        if self._tokenizer.eos_token_id is not None:
            stop_ids.add(self._tokenizer.eos_token_id)
        return stop_ids

    def locked_parts(self) -> dict[str, bytes]:
        """Return the bytes of everything a prompt is made from, by name."""
        parts = {
            name: (self.folder / name).read_bytes()
            for name in prompt_files.NAMES
            if name != prompt_files.CONFIG and (self.folder / name).is_file()
        }
        return {**self._writer.sources(), **parts}

    def close(self) -> None:
        """End what was started to write prompts."""
        self._writer.close()

    def _tokenized(self, text: str) -> Rendering:
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return Rendering(
            text, tuple(encoded["input_ids"]), _pieces(text, encoded["offset_mapping"])
        )


def _reader() -> Any:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from transformers import AutoTokenizer  # noqa: PLC0415 - seconds of import, only when used

    return AutoTokenizer


def _load(checkpoint: Checkpoint, folder: str) -> Any:
    try:
        return _reader().from_pretrained(folder)
    except Exception as error:
        # Files missing, cut short, of a class this transformers does not know: it raises anything.
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"checkpoint {checkpoint.name}: its tokenizer does not load: {first}\n"
            f"are tokenizer.json and tokenizer_config.json in {folder} whole, and of a class that "
            "this transformers knows?"
        ) from error


def _pieces(text: str, offsets: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """Cut the text at its tokens; characters between two tokens go to the later one."""
    pieces: list[str] = []
    done = 0
    for _, end in offsets:
        pieces.append(text[done:end])
        done = max(done, end)
    return tuple(pieces)
