"""A replay takes only allowed flags, variables and requests from an incident."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.incidents import checks, types as incidents_types
from pytest_vllm_gates.incidents.types import Send

RULES = incidents_types.load()
CPU = tomllib.loads(Path(__file__).with_name("full_lane.toml").read_text(encoding="utf-8"))


def faults(table: str = "serve", name: str = "ours", **entries: Any) -> list[str]:
    lane = lanes.Lane.model_validate(
        {**CPU, "name": name, "file": Path("lane.toml"), table: entries}, strict=False
    )
    return [fault.strip() for fault in checks.lane_faults(lane, RULES.lane)]


def test_incident_cannot_set_anything_that_runs_code() -> None:
    assert RULES.lane.serve and RULES.lane.env
    dangerous = {"trust_remote_code", "chat_template", "middleware", "worker_cls", "api_key"}
    assert not dangerous & set(RULES.lane.serve)
    assert not {"PATH", "LD_PRELOAD", "PYTHONPATH", "VLLM_PLUGINS"} & set(RULES.lane.env)


@pytest.mark.parametrize("name", sorted(lanes.files(Path("/nowhere"))))
def test_shipped_lane_may_be_booted_from_an_incident(name: str) -> None:
    lane = lanes.load(name, Path("/nowhere"))
    assert list(checks.lane_faults(lane, RULES.lane)) == []


@pytest.mark.parametrize("rule", sorted(RULES.lane.serve))
@pytest.mark.parametrize(
    "value",
    [
        ["0", "--log-config-file", "evil.json"], {"a": "b"}, "-1", "--host=0.0.0.0", "/etc/passwd",
        "../evil", "evil.module:Class", "a b", "", "x" * 65, float("nan"), float("inf"), -(10**30),
        10**30, "\x1b[2J", "Ignore", None,
    ],
    ids=repr,
)  # fmt: skip
def test_flag_of_a_wrong_value_is_refused(rule: str, value: Any) -> None:
    if value == "Ignore" and RULES.lane.serve[rule].kind == "word":
        return
    if value is None:
        return
    (fault,) = faults(**{rule: value})
    assert fault.startswith(f"serve {rule} = ")
    assert len(fault) < 250


@pytest.mark.parametrize("rule", sorted(RULES.lane.env))
@pytest.mark.parametrize(
    "value", ["-1", "--x", "/evil", "../evil", "a b", "", "1\n2", "$(id)", "x=y:z", "9" * 65]
)
def test_variable_of_a_wrong_value_is_refused(rule: str, value: str) -> None:
    (fault,) = faults("env", **{rule: value})
    assert fault.startswith(f"env {rule} = ")


def test_a_capacity_that_crashes_pytorch_is_refused() -> None:
    (fault,) = faults("env", LRU_CACHE_CAPACITY="0")
    assert fault.startswith("env LRU_CACHE_CAPACITY = ")
    assert faults("env", LRU_CACHE_CAPACITY="1") == []


@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONBREAKPOINT",
        "PATH", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "HF_ENDPOINT", "VLLM_PLUGINS",
        "VLLM_CONFIG_ROOT", "VLLM_LOGGING_CONFIG_PATH", "TRITON_CACHE_DIR", "CUDA_HOME",
        "NCCL_NET_PLUGIN", "HOME",
    ],
)  # fmt: skip
def test_variable_that_is_not_listed_is_refused_by_name(name: str) -> None:
    assert faults("env", **{name: "1"}) == [f"env {name}"]


@pytest.mark.parametrize(
    "name",
    [
        "trust_remote_code", "trust-remote-code", "host", "port", "log_config_file",
        "chat_template", "middleware", "worker_cls", "plugins", "tool_parser_plugin",
        "reasoning_parser_plugin", "logits_processors", "api_key", "allowed_local_media_path",
        "hf_overrides", "load_format",
        "download_dir", "tokenizer", "config", "ssl_keyfile", "root_path", "speculative_config",
    ],
)  # fmt: skip
def test_flag_that_is_not_listed_is_refused_by_name(name: str) -> None:
    flags: dict[str, Any] = {name: True}
    assert faults(**flags) == [f"serve {name}"]


@pytest.mark.parametrize("name", ["../../evil", "-x", "", "a b"])
def test_name_that_is_not_a_word_is_refused(name: str) -> None:
    assert faults(name=name) == [f"name {name!r}"]


def test_flags_that_choose_among_vllms_own_parts_are_allowed() -> None:
    allowed: dict[str, Any] = {
        "seed": 7, "dtype": "bfloat16", "max-model-len": 4096, "gpu_memory_utilization": 0.92,
        "kv_cache_dtype": "fp8_e4m3", "enforce_eager": False, "tool_call_parser": "qwen3_coder",
    }  # fmt: skip
    assert faults(**allowed) == []
    env = {"CUDA_VISIBLE_DEVICES": "0,1", "OMP_NUM_THREADS": "4", "PYTHONMALLOC": "malloc"}
    assert faults("env", **env) == []


def send(method: str, path: str) -> Send:
    return Send(
        name="1", method=method, path=path, headers={}, body=None, response=None, status=200
    )


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "/v1/models/ours"), ("POST", "/sleep"), ("POST", "/wake_up"),
        ("PUT", "/v1/models"), ("POST", "/v1/load_lora_adapter"), ("POST", "/collective_rpc"),
        ("GET", "/v1/files"), ("POST", "/v1/chat/completions/../../sleep"),
        ("POST", "//evil.example/v1/completions"), ("POST", "/v1/chat/completions?x=1"),
        ("post", "/v1/chat/completions"), ("POST", "/invocations"), ("POST", "/metrics"),
        ("PATCH", "/v1/chat/completions"), ("POST", "/v1/chat%2fcompletions"),
    ],
)  # fmt: skip
def test_request_that_is_not_inference_is_refused(method: str, path: str) -> None:
    faults = list(checks.route_faults([send(method, path)], RULES.routes))
    assert faults == [f"{method!r} {path!r}"]


def test_inference_is_sent_again() -> None:
    sends = [send("POST", path) for path in RULES.routes.post]
    sends += [send("GET", path) for path in RULES.routes.get]
    assert list(checks.route_faults(sends, RULES.routes)) == []
