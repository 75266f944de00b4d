"""Checks the checkpoint: it is complete, this vLLM knows it, and the requested length fits."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.preflight import flags
from pytest_vllm_gates.preflight.types import CheckResult, fails, not_applicable, ok, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.preflight.types import Situation

NO_CONFIG = "the checkpoint's config.json cannot be read"
LENGTH_KEYS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
    "max_target_positions", "max_sequence_length", "max_seq_length", "seq_len",
)  # fmt: skip
# With these the length in the config is already scaled.
SCALED = {"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"}
# The messages of the Hub's client, and their causes.
CAUSES = {
    r"(?i)gated|\b40[13]\b": "the checkpoint is gated, and no user with access is logged in here",
    r"(?i)\b404\b|not found": "no checkpoint has this name, or it is private",
    r"(?i)outgoing traffic|offline|connect|resolve|timed? ?out": "the Hub cannot be reached from "
    "here, and the checkpoint is not in its cache",
}
NONE = "the name is not a checkpoint: a folder has a config.json, a Hub id is org/name"
LONGER = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"


def checkpoint(situation: Situation) -> CheckResult:
    """The files must exist and be complete."""
    model = situation.model
    if model.unseen:
        return unknown(model.unseen.partition("\n")[0])
    if model.problem:
        return fails(
            model.problem.partition("\n")[0],
            cause=_cause(model.problem),
            fix=model.problem.partition("\n")[2]
            or "hf auth login, accept its terms on its page, or name a local folder",
        )
    if model.weights_problem and situation.flag("load_format", "auto") != "dummy":
        if situation.renderer:
            return ok("its config can be read, and a renderer needs no weights")
        if model.has_no_weights:
            cause = "the folder has only the files of a config or a tokenizer"
            fix = "fetch the weights: hf download REPOSITORY --local-dir FOLDER; or test only its "
            fix += f"prompts, which need none: pytest --model {model.source} -m chat_template"
        else:
            cause = "a download or a copy was not completed"
            fix = (
                "fetch it again: hf download REPOSITORY --local-dir FOLDER; with Git: git lfs pull"
            )
        return fails(f"{model.source}: {model.weights_problem}", cause=cause, fix=fix)
    return ok(f"{model.source}: no missing file was found")


def _cause(problem: str) -> str:
    """Return the cause of a problem with a checkpoint, by the words of the error."""
    return next((cause for words, cause in CAUSES.items() if re.search(words, problem)), NONE)


def architecture(situation: Situation) -> CheckResult:
    """The lane's vLLM must implement the architecture itself or through transformers."""
    model, bundle = situation.model, situation.bundle
    names = model.config.get("architectures")
    if not model.config:
        return unknown(NO_CONFIG)
    if not bundle.architectures:
        return unknown("the architectures of the lane's vLLM cannot be listed")
    if not isinstance(names, list) or not names:
        return unknown("config.json names no architecture")
    if "hf_overrides" in situation.serve:
        return unknown("--hf-overrides may change the architecture")
    supported = [name for name in names if name in bundle.architectures]
    if supported:
        return ok(f"vLLM {bundle.vllm} has {supported[0]}")
    name = str(names[0])
    if any(_stem(name) == _stem(known) for known in bundle.architectures):
        return unknown(f"vLLM does not have {name}, but may convert a similar model to it")
    if bundle.plugins or model.config.get("auto_map"):
        return unknown(
            f"vLLM {bundle.vllm} does not have {name}; a plugin "
            f"({', '.join(bundle.plugins) or 'none is installed'}) or the checkpoint's code may"
        )
    if name in bundle.gone:
        return fails(
            f"Model architecture {name} was supported in vLLM until v{bundle.gone[name]}, but is "
            f"not in {bundle.vllm}",
            cause="the architecture was removed from vLLM",
            fix=f"use a lane with vllm<={bundle.gone[name]}",
        )
    if name in bundle.transformers_architectures:
        return unknown(f"vLLM does not have {name}, but may serve it through transformers")
    return fails(
        f"Model architectures {names} are not supported by vLLM {bundle.vllm}, nor by transformers "
        f"{bundle.versions.get('transformers', '')}",
        cause="the model is newer than the lane, or needs a plugin",
        fix="use a lane with a newer vLLM, or install the plugin that adds the model",
    )


def _stem(architecture: str) -> str:
    """Return an architecture's name without its purpose: `Qwen3` of `Qwen3ForCausalLM`."""
    return re.split(r"For[A-Z]|LMHeadModel|(?:Chat|Embedding|Reward)?Model$", architecture)[0]


def model_type(situation: Situation) -> CheckResult:
    """The lane's transformers or vLLM must be able to read the config."""
    model, bundle = situation.model, situation.bundle
    if not model.config:
        return unknown(NO_CONFIG)
    if not bundle.model_types:
        return unknown("the model types of the lane's transformers cannot be listed")
    name = model.config.get("model_type")
    if not isinstance(name, str):
        return unknown("config.json has no model_type")
    if name in bundle.model_types:
        return ok(f"transformers {bundle.versions.get('transformers', '')} or vLLM reads {name}")
    if bundle.plugins:
        return unknown(f"{', '.join(bundle.plugins)} may add {name}")
    if model.config.get("auto_map"):
        if situation.flag("trust_remote_code"):
            return ok(f"the checkpoint's own code reads {name}")
        return fails(
            f"the model type {name} is read by code in the checkpoint, which is not allowed to run",
            cause="neither this transformers nor this vLLM knows it; transformers would report "
            "`contains custom code which must be executed to correctly load the model`",
            fix="review that code and set trust_remote_code = true in [serve], or use a newer lane",
        )
    return fails(
        f"the checkpoint has model type `{name}`, which neither transformers "
        f"{bundle.versions.get('transformers', '')} nor vLLM {bundle.vllm} recognises",
        cause="the lane's transformers is older than the model; it would report `Transformers does "
        "not recognize this architecture`",
        fix="use a lane with a newer vLLM and the transformers that it declares",
    )


def parsers(situation: Situation) -> CheckResult:
    """The lane's vLLM must know the parsers by name."""
    settings = [
        f"{flag} {situation.serve[flag]}"
        for flag in ("reasoning_parser", "tool_call_parser")
        if situation.serve.get(flag)
    ]
    if not settings:
        return not_applicable("no parser is named")
    if situation.unknown_parser:
        return fails(
            situation.unknown_parser,
            cause="the family was written for another vLLM, or the name is mistyped",
            fix="name a known parser in [serve], or add it: reasoning_parser_plugin, "
            "tool_parser_plugin",
        )
    if not situation.parsers_known:
        return unknown("the parsers of the lane's vLLM cannot be listed")
    return ok(", ".join(settings))


def max_model_len(situation: Situation) -> CheckResult:
    """The requested length must not exceed the length that the model was made for."""
    requested, model = flags.length(situation), situation.model
    if not model.config:
        return _of_listed(situation, requested)
    derived, key = _derived(situation)
    if derived is None:
        return unknown("config.json does not contain the length of the model's context")
    if requested is None or requested == flags.FIT:
        return ok(f"not set; the model's length is {derived} ({key})")
    tokenizer_length = model.text.get("model_max_length")
    if requested <= derived or (
        isinstance(tokenizer_length, int) and requested <= tokenizer_length
    ):
        return ok(f"{requested} of {derived} ({key})")
    if situation.environment.get(LONGER, "").lower() in ("1", "true"):
        return ok(f"{requested} is more than the model's {derived} ({key}), but {LONGER} allows it")
    if "hf_overrides" in situation.serve:
        return unknown(
            f"{requested} is more than the config's {derived}, which --hf-overrides changes"
        )
    return fails(
        f"User-specified max_model_len ({requested}) is greater than the derived max_model_len "
        f"({key}={derived})",
        cause="the deployment plans for a longer context than the model was made for",
        fix=f"max_model_len = {derived} in [serve] of the lane or of the checkpoint "
        f"({LONGER}=1 overrides this, but later positions are wrong)",
    )


def _of_listed(situation: Situation, requested: int | None) -> CheckResult:
    """Judge a length by the family's file, if the config cannot be read."""
    native = situation.native
    allowed = situation.environment.get(LONGER, "").lower() in ("1", "true")
    if native is None or requested is None or allowed or "hf_overrides" in situation.serve:
        return unknown(NO_CONFIG)
    if requested == flags.FIT or requested <= native:
        return unknown(
            f"{NO_CONFIG}; in the family's file {situation.model.source} has {native} tokens"
        )
    return fails(
        f"max_model_len ({requested}) is more than the {native} tokens that "
        f"{situation.model.source} was made for",
        cause="the deployment plans for a longer context than the model was made for; its "
        "config.json cannot be read from here, so the figure is from the family's file",
        fix=f"max_model_len = {native} in [serve] of the lane or of the checkpoint; for rope "
        f"scaling, hf_overrides and {LONGER}=1",
    )


def _derived(situation: Situation) -> tuple[int | None, str]:
    """Return the longest context, derived from the config as in vLLM, and its key."""
    model = situation.model
    lengths = {key: value for key in LENGTH_KEYS if (value := model.integer(key))}
    if not lengths:
        return None, ""
    key = min(lengths, key=lambda name: lengths[name])
    if "model_max_length" in lengths:
        key = "model_max_length"
    length: float = lengths[key]
    window = model.integer("sliding_window")
    if situation.flag("disable_sliding_window") and window and window < length:
        key, length = "sliding_window", window
    if "gemma3" not in str(model.text.get("model_type")):
        factor = 1.0
        for rope in _rope(model.text):
            kind = rope.get("rope_type", rope.get("type", "default"))
            if kind not in SCALED and isinstance(rope.get("factor"), int | float):
                factor = rope["factor"]
        length *= factor
    return (int(length) if math.isfinite(length) else None), key


def _rope(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the rotary settings: one, or one for each kind of layer."""
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    if isinstance(rope, dict):
        nested = [part for part in rope.values() if isinstance(part, dict)]
        yield from nested or [rope]


def quantization(situation: Situation) -> CheckResult:
    """The lane's vLLM must support the quantisation of the weights."""
    known_methods, settings = situation.bundle.quantizations, situation.model.quantization
    requested = situation.flag("quantization")
    if settings is None and requested is None:
        if not situation.model.config:
            return unknown(NO_CONFIG)
        return not_applicable("the weights are not quantised")
    checkpoint_method = str((settings or {}).get("quant_method") or "").lower()
    method = checkpoint_method.replace("compressed_tensors", "compressed-tensors") or str(
        requested or ""
    )
    if not method:
        return unknown("config.json has a quantization_config without a quant_method")
    if not known_methods:
        return unknown(f"the quantisations of the lane's vLLM cannot be listed; this is {method}")
    strange = [
        candidate
        for candidate in (method, str(requested or method))
        if candidate not in known_methods
    ]
    if checkpoint_method in situation.bundle.taken_over:
        return ok(f"vLLM {situation.bundle.vllm} serves {checkpoint_method} by its own method")
    if strange and situation.bundle.plugins:
        return unknown(f"{', '.join(situation.bundle.plugins)} may add {strange[0]}")
    if strange:
        return fails(
            f"Unknown quantization method: {strange[0]}. vLLM {situation.bundle.vllm} has "
            f"{', '.join(sorted(known_methods))}",
            cause="the weights were quantised for another engine, or for a newer vLLM",
            fix="use another quantisation of the model, or a newer lane",
        )
    return ok(f"vLLM {situation.bundle.vllm} has {method}")
