"""The reference rendering of a checkpoint's prompts, by its template and tokenizer; no torch."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, Protocol

from pytest_vllm_gates.checkpoints import prompt_files
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.goldens import Refused, Rendering
from pytest_vllm_gates.prompts import starter, template_files, worker as workers
from pytest_vllm_gates.prompts.limits import KEPT_CHARACTERS, SECONDS_VARIABLE, SET_BY, RenderLimits
from pytest_vllm_gates.prompts.template import Template
from pytest_vllm_gates.prompts.types import Endless, OverLimit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint

SHOWN_CHARACTERS = 80
VISION = "vision_config"
"""The key in `config.json` of a checkpoint that sees images."""


def preload() -> None:
    """Start the seconds-long import of transformers: called while a server starts anyway.

    Raises `UserError` if no process can be started.
    """
    starter.shared().get()


class Writer(Protocol):
    """Writes prompts: the checkpoint's template, or the encoder of a lane's vLLM."""

    def write(self, body: Mapping[str, Any]) -> str:
        """Return the text of a request's prompt; raises `Refused` and `OverLimit`."""

    def sources(self) -> dict[str, bytes]:
        """Return the bytes of its files, by name."""

    def takes_parts(self) -> bool:
        """Return whether it gets content in parts, and so sees where an image is."""

    def close(self) -> None:
        """End the process that it started, if any."""


class ReferenceRenderer:
    """Renders conversations by a checkpoint's files, in a separate process.

    Raises `UserError` if they cannot be used: the message names the file and the fault.
    """

    def __init__(
        self, checkpoint: Checkpoint, serve: Mapping[str, Any], writer: Writer | None = None
    ) -> None:
        """Load the tokenizer, and the template by `serve`'s flags, or take a `writer`."""
        self.folder = prompt_files.folder(checkpoint)
        self._limits = RenderLimits.from_environment()
        self._worker = _load(checkpoint, self.folder, serve, self._limits)
        self._rendered: dict[str, Rendering | Refused] = {}
        self._over: dict[str, OverLimit] = {}
        self._kept_characters = 0
        self._pieces: dict[int, str] = {}
        try:
            self._writer: Writer = writer or Template(checkpoint, self._worker, serve, self._limits)
        except BaseException:
            self._worker.close()
            raise

    def render(self, body: Mapping[str, Any]) -> Rendering:
        """Render a request's prompt as vLLM does.

        `body` is a chat completion request: messages, and optionally tools,
        chat_template_kwargs, reasoning_effort and continue_final_message. Raises `Refused` if
        the template does, and `OverLimit` if it needs too much; `Endless` is the time.
        """
        outcome = self.outcome(body)
        if isinstance(outcome, Refused):
            raise outcome
        return outcome

    def outcome(self, body: Mapping[str, Any]) -> Rendering | Refused:
        """Return a request's prompt or, if the template refuses, its refusal.

        Raises `OverLimit` if it needs too much; such a request is not rendered a second time.
        """
        key = json.dumps(body)
        if key in self._over:
            raise self._over[key]
        if key in self._rendered:
            return self._rendered[key]
        outcome: Rendering | Refused
        try:
            outcome = self._tokenized(self._writer.write(body))
        except Refused as refused:
            outcome = refused
        except OverLimit as error:
            self._over[key] = error
            raise
        self._keep(key, outcome)
        return outcome

    def token_ids(self, text: str) -> list[int]:
        """Return the ids of a text that is only part of a prompt."""
        ids: list[int] = self._request("ids", text=text)["ids"]
        return ids

    def piece(self, token_id: int) -> str:
        """Return the text of one token."""
        if token_id not in self._pieces:
            self._pieces[token_id] = self._request("decode", token_id=token_id)["text"]
        return self._pieces[token_id]

    def stop_ids(self) -> set[int]:
        """Return the ids at which `generation_config.json` and `config.json` end an answer."""
        stop_ids: set[int] = set()
        for name in ("generation_config.json", "config.json"):
            with contextlib.suppress(OSError, ValueError, RecursionError):
                stop_ids |= _stop_ids(json.loads((self.folder / name).read_bytes()))
        eos = self._worker.loaded["eos"]
        return stop_ids | _integers([eos])

    def takes_images(self) -> bool:
        """Return whether the checkpoint sees images, and its prompts have places for them."""
        config = {}
        with contextlib.suppress(OSError, ValueError, RecursionError):
            config = json.loads((self.folder / prompt_files.CONFIG).read_bytes())
        return isinstance(config, dict) and VISION in config and self._writer.takes_parts()

    def locked_parts(self) -> dict[str, bytes]:
        """Return the bytes of all files that determine prompts, by name."""
        parts = {
            name: (self.folder / name).read_bytes()
            for name in prompt_files.NAMES
            if name != prompt_files.CONFIG and (self.folder / name).is_file()
        }
        return {**self._writer.sources(), **parts}

    def close(self) -> None:
        """End the processes that write prompts."""
        self._writer.close()
        self._worker.close()

    def _keep(self, key: str, outcome: Rendering | Refused) -> None:
        """Cache an outcome; many long ones are rendered again instead."""
        size = len(outcome.text) if isinstance(outcome, Rendering) else 0
        if self._kept_characters + size > KEPT_CHARACTERS:
            self._rendered.clear()
            self._kept_characters = 0
        self._rendered[key] = outcome
        self._kept_characters += size

    def _tokenized(self, text: str) -> Rendering:
        try:
            encoded = self._request("encode", text=text)
        except workers.WorkerFailed as error:
            raise Refused(f"the tokenizer does not take the prompt: {error}") from error
        return Rendering(text, tuple(encoded["ids"]), _pieces(text, encoded["ends"]))

    def _request(self, operation: str, **arguments: Any) -> dict[str, Any]:
        try:
            return self._worker.request(operation, self._limits.seconds, **arguments)
        except Endless as error:
            raise Endless(
                f"the tokenizer was {error}{SET_BY.format(SECONDS_VARIABLE)}; {self._worker.title}"
            ) from error
        except OverLimit as error:
            raise OverLimit(f"the tokenizer {error}; {self._worker.title}") from error


def _load(
    checkpoint: Checkpoint, folder: Path, serve: Mapping[str, Any], limits: RenderLimits
) -> workers.RenderWorker:
    override = serve.get("chat_template")
    try:
        template_files.check_folder(folder)
        template = template_files.named_by_flag(override) if override else None
    except UserError as error:
        raise UserError(f"checkpoint {checkpoint.name}: {error}") from error
    title = f"it is {_source(folder, override)}"
    try:
        return workers.RenderWorker(title, folder, template, limits)
    except workers.WorkerFailed as error:
        # Files that are missing, cut short, or of a class that this transformers does not know.
        raise UserError(
            f"checkpoint {checkpoint.name}: its tokenizer does not load: {error}\n"
            f"are tokenizer.json and tokenizer_config.json in {folder} whole, and of a class that "
            "this transformers knows?"
        ) from error


def _source(folder: Path, override: str | None) -> str:
    """Return the origin of a template, as messages name it."""
    if override:
        return f"chat_template = {override[:SHOWN_CHARACTERS]!r} of [serve]"
    file = folder / template_files.TEMPLATE_FILE
    return str(file if file.is_file() else folder / template_files.TOKENIZER_CONFIG)


def _stop_ids(config: Any) -> set[int]:
    """Return the ids at which a configuration ends an answer."""
    if not isinstance(config, dict):
        return set()
    inner = config.get("text_config")
    eos = config.get("eos_token_id", inner.get("eos_token_id") if isinstance(inner, dict) else None)
    return _integers(eos if isinstance(eos, list) else [eos])


def _integers(values: Sequence[Any]) -> set[int]:
    return {value for value in values if type(value) is int}


def _pieces(text: str, ends: Sequence[int]) -> tuple[str, ...]:
    """Cut the text at its tokens' ends; characters between two tokens go to the later one."""
    pieces: list[str] = []
    done = 0
    for end in ends:
        pieces.append(text[done:end])
        done = max(done, end)
    return tuple(pieces)
