"""Log-probabilities of a prompt and its greedy continuation: served, or by transformers in fp32."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.form import reading
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.numerics.types import ReferenceScores, Scores

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.client.endpoint import Endpoint

PROGRAM = Path(__file__).with_name("fp32_program.py")

PROGRAM_LIMIT_S = 900.0

SMALL_BYTES = 512 * 2**20
"""Weights up to this size are worth scoring in fp32 on a CPU."""

WEIGHTS = "*.safetensors"
PIECE_BYTES = 2**20


def served_scores(
    endpoint: Endpoint, prompt: Sequence[int], count: int, *, score_prompt: bool
) -> Scores:
    """Return the server's own log-probabilities of a prompt and `count` greedy tokens.

    `score_prompt` makes vLLM compute the prompt anew, past its prefix cache. Without it
    `prompt_logprobs` stays empty and the prefix cache is used as in service.
    """
    body: dict[str, Any] = {
        "model": endpoint.model,
        "prompt": list(prompt),
        "max_tokens": max(count, 1),
        "temperature": 0,
        "seed": 0,
        "logprobs": 1,
        "return_token_ids": True,
    }
    if score_prompt:
        body["prompt_logprobs"] = 1
    with http.client(endpoint) as client:
        reply = client.post("/v1/completions", json=body)
        reply.raise_for_status()
    with reading("the answer of /v1/completions"):
        return _scores(reply.json()["choices"][0], prompt)


def _scores(choice: dict[str, Any], prompt: Sequence[int]) -> Scores:
    scored = choice.get("prompt_logprobs") or [None]
    return Scores(
        prompt=tuple(prompt),
        prompt_logprobs=tuple(
            place[str(token)]["logprob"]
            for place, token in zip(scored[1:], prompt[1:], strict=False)
        ),
        output=tuple(choice["token_ids"]),
        output_logprobs=tuple(choice["logprobs"]["token_logprobs"]),
    )


def served_chat_scores(endpoint: Endpoint, body: Mapping[str, Any], count: int) -> Scores:
    """Return the server's log-probabilities of a chat's prompt and `count` greedy tokens.

    Raises `httpx2.HTTPError` if it sends none. Tokens of images are scored as all others are.
    """
    asked = {
        **body, "max_tokens": count, "temperature": 0, "seed": 0, "logprobs": True,
        "prompt_logprobs": 1, "return_token_ids": True,
    }  # fmt: skip
    reply = http.post(endpoint, http.CHAT, asked).raise_for_status()
    with reading(f"the answer of {http.CHAT}"):
        told = reply.json()
        choice = told["choices"][0]
        scored = [token["logprob"] for token in choice["logprobs"]["content"]]
        whole = {
            "prompt_logprobs": told["prompt_logprobs"],
            "token_ids": choice["token_ids"],
            "logprobs": {"token_logprobs": scored},
        }
        return _scores(whole, told["prompt_token_ids"])


def compute(
    checkpoint: Checkpoint,
    python: Path,
    overlay: Path | None,
    prompts: Mapping[str, tuple[Sequence[int], int]],
    pictures: Mapping[str, Sequence[str]] | None = None,
) -> ReferenceScores:
    """Score prompts and continue them greedily by transformers in fp32, in the lane's interpreter.

    `prompts` has by name the token ids and how many tokens to generate, `pictures` the data URLs
    of the images in them. Raises `UserError` if transformers cannot run the checkpoint.
    """
    pictures = pictures or {}
    cases = {
        name: {"prompt": list(ids), "generate": n, "pictures": list(pictures.get(name, ()))}
        for name, (ids, n) in prompts.items()
    }
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    if overlay:
        env["PYTHONPATH"] = str(overlay)
    try:
        process = subprocess.run(
            [str(python), str(PROGRAM)],
            input=json.dumps({"model": checkpoint.source, "cases": cases}),
            env=env, capture_output=True, text=True, timeout=PROGRAM_LIMIT_S, check=True,
        )  # fmt: skip
        answer = json.loads(process.stdout.splitlines()[-1])
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines()[-1:] or ["no message"]
        raise UserError(
            f"transformers cannot score {checkpoint.name} in fp32: {lines[0]}"
        ) from error
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        raise UserError(f"the fp32 reference of {checkpoint.name} failed: {error}") from error
    versions = ", ".join(f"{name} {version}" for name, version in answer["versions"].items())
    return ReferenceScores(
        weights=weights_sha256(checkpoint) or "unknown",
        source=f"{versions}, float32",
        cases={
            name: Scores(**{key: tuple(values) for key, values in case.items()})
            for name, case in answer["cases"].items()
        },
    )


def is_small(checkpoint: Checkpoint) -> bool:
    """Return whether the weights are on this machine and small enough to score in fp32 on a CPU."""
    sizes = [path.stat().st_size for path in _weight_files(checkpoint)]
    return bool(sizes) and sum(sizes) <= SMALL_BYTES


def weights_sha256(checkpoint: Checkpoint) -> str | None:
    """Return the SHA-256 over all weight files, or None if they are large or not here."""
    if not is_small(checkpoint):
        return None
    digest = hashlib.sha256()
    for path in _weight_files(checkpoint):
        with bounded_read.opened(path) as file:
            while piece := file.read(PIECE_BYTES):
                digest.update(piece)
    return digest.hexdigest()


def dtype(checkpoint: Checkpoint) -> str:
    """Return the dtype that the checkpoint's config names; "bfloat16" by default."""
    folder = checkpoint.folder
    if folder is None:
        return "bfloat16"
    config = bounded_read.json_object(folder / "config.json", whole=True)
    inner = config.get("text_config")
    for place in (config, inner if isinstance(inner, dict) else {}):
        for key in ("dtype", "torch_dtype"):
            if place.get(key):
                return str(place[key])
    return "bfloat16"


def _weight_files(checkpoint: Checkpoint) -> list[Path]:
    return sorted(checkpoint.folder.glob(WEIGHTS)) if checkpoint.folder else []
