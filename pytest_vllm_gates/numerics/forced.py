"""Forces the same ordinary texts through a server, alone and in a batch, and lets it continue.

The long text comes first: only it shows faults that begin far in a context.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import outside, toml
from pytest_vllm_gates.client import http
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.numerics.client import served_scores
from pytest_vllm_gates.numerics.forced_types import ForcedRun, ForcedText

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.client.endpoint import Endpoint

NAME = "forced_texts.toml"
FILE = data.FOLDER / NAME
TOKENS = 256
"""The most tokens of a text that sets no limit."""
LEAST_TOKENS, MOST_TOKENS = 16, 2**20
MOST_REPEATS = 10_000
LONG = "long"
LONG_TOKENS = 1024
"""The most tokens of all texts in sequence, to show faults that begin far in a context."""
ANSWER_TOKENS = 16
AT_ONCE = 8
"""Concurrent requests; a round has at least so many texts."""
PRECISION = (
    "dtype", "quantization", "kv_cache_dtype", "hf_overrides", "rope_scaling", "rope_theta",
    "load_format", "calculate_kv_scales",
)  # fmt: skip
"""Flags with which a server computes something else on purpose, or may."""
KERNELS = (
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size",
    "decode_context_parallel_size", "enable_expert_parallel", "attention_backend",
    "attention_config", "model_impl", "enforce_eager", "compilation_config", "block_size",
    "max_num_batched_tokens", "speculative_config",
)  # fmt: skip
"""Flags with which the same numbers are computed by other kernels, or summed in another order."""
KERNEL_VARIABLES = (
    "OMP_NUM_THREADS", "VLLM_ATTENTION_BACKEND", "VLLM_CPU_OMP_THREADS_BIND",
    # The instruction sets that torch and oneDNN may use.
    "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA",
)  # fmt: skip


class Text(toml.Record):
    """A text of `forced_texts.toml`."""

    name: toml.Name
    text: str = Field(min_length=1)
    repeat: int = Field(default=1, ge=1, le=MOST_REPEATS)
    tokens: int = Field(default=TOKENS, ge=LEAST_TOKENS, le=MOST_TOKENS)
    """The number of first tokens to force, or as many as the context has room for."""


class Texts(toml.Record):
    """The texts of `forced_texts.toml`."""

    texts: tuple[Text, ...]


def load_all(project: Path) -> tuple[Text, ...]:
    """Read the shipped texts and those of the project's own `forced_texts.toml`.

    Raises `UserError` for a fault in the file, and for a name that is taken.
    """
    texts = [*toml.load(FILE, Texts).texts]
    own = project / NAME
    if own.is_file():
        taken = {LONG, *(text.name for text in texts)}
        for text in outside.load(own, Texts).texts:
            if text.name in taken:
                raise UserError(
                    f"{own}: a text is called {text.name!r} already: give it another name"
                )
            taken.add(text.name)
            texts.append(text)
    return tuple(texts)


def declared(serve: Mapping[str, Any]) -> dict[str, str]:
    """Return the flags of precision and positions among those a server is started with."""
    return {name: str(serve[name]) for name in PRECISION if name in serve}


def build(
    vllm: str, versions: Mapping[str, str], serve: Mapping[str, Any], env: Mapping[str, str]
) -> str:
    """Return the facts that decide which kernels run: two servers of one build round alike."""
    torch = [f"torch {versions['torch']}"] if "torch" in versions else []
    flags = [f"{name} {serve[name]}" for name in KERNELS if name in serve]
    variables = [f"{name} {env[name]}" for name in KERNEL_VARIABLES if name in env]
    return ", ".join([vllm, *torch, *flags, *variables])


class ForcedRounds:
    """The forced texts in rounds: the caller may stop after each one.

    Iterate it once; each round is the run so far. Raises `httpx.HTTPError` if a round fails.
    """

    def __init__(
        self, endpoint: Endpoint, texts: Sequence[Text], context: int, nothing: ForcedRun
    ) -> None:
        self.nothing = nothing
        """The run before any request: the server's facts, without texts."""
        self._endpoint, self._texts, self._context = endpoint, texts, context
        self.looks = max(1, (len(texts) + 1) // AT_ONCE)
        """How many rounds there are."""

    def __iter__(self) -> Iterator[ForcedRun]:
        asked = [*_ids(self._endpoint, self._texts, self._context).items()]
        run = self.nothing
        size = -(-len(asked) // self.looks)
        for start in range(0, len(asked), size):
            scored = _scored(self._endpoint, dict(asked[start : start + size]))
            run = replace(run, texts=(*run.texts, *scored))
            yield run

    def whole(self) -> ForcedRun:
        """Return the run of all rounds."""
        run = self.nothing
        for run in self:  # noqa: B007 - the last one is wanted
            pass
        return run


def _scored(endpoint: Endpoint, ids: Mapping[str, tuple[int, ...]]) -> Iterator[ForcedText]:
    """Yield each text's scores alone, beside the others, and of its continuation."""
    alone = {
        name: served_scores(endpoint, tokens, 1, score_prompt=True).prompt_logprobs
        for name, tokens in ids.items()
    }
    with ThreadPoolExecutor(AT_ONCE) as pool:
        together = pool.map(
            lambda tokens: served_scores(endpoint, tokens, 1, score_prompt=True).prompt_logprobs,
            ids.values(),
        )
        in_company = dict(zip(ids, together, strict=True))
        answers = pool.map(
            lambda tokens: served_scores(endpoint, tokens, ANSWER_TOKENS, score_prompt=False),
            ids.values(),
        )
        answered = dict(zip(ids, answers, strict=True))
    for name, tokens in ids.items():
        answer = answered[name]
        yield ForcedText(
            name, tokens, alone[name], in_company[name], answer.output, answer.output_logprobs
        )


def _ids(endpoint: Endpoint, texts: Sequence[Text], context: int) -> dict[str, tuple[int, ...]]:
    """Return the tokens of all together and of each text, as many as the context has room for."""
    room = context - ANSWER_TOKENS - 1
    whole = {text.name: http.token_ids(endpoint, text.text * text.repeat) for text in texts}
    together = [token for tokens in whole.values() for token in tokens]
    ids = {text.name: tuple(whole[text.name][: min(text.tokens, room)]) for text in texts}
    return {LONG: tuple(together[: min(LONG_TOKENS, room)]), **ids}
