"""Loads adapters into a running server and unloads them again.

The routes `/v1/load_lora_adapter` and `/v1/unload_lora_adapter` exist in a server started with
VLLM_ALLOW_RUNTIME_LORA_UPDATING (docs.vllm.ai, features/lora, read 2026-11-25).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.adapters import files as adapter_files
from pytest_vllm_gates.adapters.types import (
    LOADED,
    LOADED_AGAIN,
    REPLACED,
    TAKEN_OUT,
    TAKEN_OUT_TWICE,
    LoadStep,
)
from pytest_vllm_gates.client import http

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.adapters.types import AdapterAnswers, AdapterFiles, ModelAnswer
    from pytest_vllm_gates.client.endpoint import Endpoint

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
TEXT_CHARACTERS = 300
MISSING = (httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED)
GATE_NAME = "loaded-by-the-gate"


@dataclass(frozen=True)
class UnfitPlan:
    """The folder for adapters that do not fit, and the highest rank that the server accepts."""

    folder: Path
    served_rank: int


def load_all(
    endpoint: Endpoint,
    files: Sequence[AdapterFiles],
    answers: AdapterAnswers,
    plan: UnfitPlan,
    ask: Callable[[str], ModelAnswer],
) -> None:
    """Load adapters that do not fit and that do, and record each step; `ask` queries a model."""
    if not files:
        answers.no_loading = "the folders of the adapters are not known"
        return
    if _post(endpoint, LOAD, {})[0] in MISSING:
        answers.no_loading = "the server is started without VLLM_ALLOW_RUNTIME_LORA_UPDATING"
        return
    unfit = adapter_files.write_unfit(files[0], plan.folder, plan.served_rank)
    for number, (what, path) in enumerate(unfit.items()):
        name = f"unfit-{number}"
        status, text = _load(endpoint, name, path)
        # If the server accepted it, the first question shows whether it works.
        answer = ask(name if _took(status) else "").completion
        answers.unfit.append(LoadStep(what, status, text, answer))
        if _took(status):
            _unload(endpoint, name)
    _load_and_unload(endpoint, files, answers, ask)


def _load_and_unload(
    endpoint: Endpoint,
    files: Sequence[AdapterFiles],
    answers: AdapterAnswers,
    ask: Callable[[str], ModelAnswer],
) -> None:
    def step(name: str, status_text: tuple[int, str], of: str = "") -> None:
        answers.loads.append(LoadStep(name, *status_text, ask(GATE_NAME).completion, of))

    step(LOADED, _load(endpoint, GATE_NAME, files[0].folder), files[0].name)
    step(TAKEN_OUT, _unload(endpoint, GATE_NAME))
    status, text = _unload(endpoint, GATE_NAME)
    answers.loads.append(LoadStep(TAKEN_OUT_TWICE, status, text))
    step(LOADED_AGAIN, _load(endpoint, GATE_NAME, files[0].folder), files[0].name)
    if len(files) > 1:
        _unload(endpoint, GATE_NAME)
        step(REPLACED, _load(endpoint, GATE_NAME, files[1].folder), files[1].name)
    _unload(endpoint, GATE_NAME)


def _load(endpoint: Endpoint, name: str, path: Path) -> tuple[int, str]:
    return _post(endpoint, LOAD, {"lora_name": name, "lora_path": str(path)})


def _unload(endpoint: Endpoint, name: str) -> tuple[int, str]:
    return _post(endpoint, UNLOAD, {"lora_name": name})


def _took(status: int) -> bool:
    return httpx.codes.is_success(status)


def _post(endpoint: Endpoint, path: str, body: Mapping[str, Any]) -> tuple[int, str]:
    """Return status and beginning of an answer; 0 and the reason without an answer."""
    try:
        with http.client(endpoint) as client:
            reply = client.post(path, json=dict(body))
    except httpx.HTTPError as error:
        return 0, f"{type(error).__name__}: {error}"
    return reply.status_code, reply.text[:TEXT_CHARACTERS]
