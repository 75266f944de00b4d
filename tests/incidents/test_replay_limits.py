"""The shipped limits of what an incident's lane can set in a replay."""

from __future__ import annotations

from pytest_vllm_gates.incidents import types as incidents_types


def test_incident_cannot_set_anything_that_runs_code() -> None:
    rules = incidents_types.load()
    assert rules.lane.serve and rules.lane.env
    dangerous = {"trust_remote_code", "chat_template", "middleware", "worker_cls", "api_key"}
    assert not dangerous & set(rules.lane.serve)
    assert not {"PATH", "LD_PRELOAD", "PYTHONPATH", "VLLM_PLUGINS"} & set(rules.lane.env)
