"""Harmony prompts, as the lane's vLLM writes them: nothing of a client's is lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.catalog.conversation import load_all, shapes
from pytest_vllm_gates.catalog.known_defects import sort_findings
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.goldens import Refused, Rendering
from pytest_vllm_gates.prompts import marked
from pytest_vllm_gates.prompts.encoder import Encoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.outcomes import Case, Finding

pytestmark = pytest.mark.real

NOWHERE = Path("/nonexistent")
FAMILY = families.load("gpt-oss", NOWHERE)


class Written:
    """Replaces a renderer whose token ids are not used."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def outcome(self, body: Mapping[str, Any]) -> Rendering | Refused:
        """Return a prompt's text, or why there is none."""
        try:
            return Rendering(self._encoder.write(body), (), ())
        except Refused as refused:
            return refused


@pytest.fixture(scope="module")
def encoder() -> Iterator[Encoder]:
    lane = lanes.load("cpu", NOWHERE)
    prepared = environment.prepare(lane, cache=files.default_cache(), progress=print)
    assert prepared.python is not None
    assert FAMILY.prompt.encoder is not None
    env = {"VLLM_SYSTEM_START_DATE": "2026-01-02"}
    started = Encoder(FAMILY.prompt.encoder, prepared.python, {}, env)
    yield started
    started.close()


def new(check: str, judged: tuple[list[Finding], list[Case]]) -> list[str]:
    findings = sort_findings(check, *judged, FAMILY.known_defects, "0.32.0")
    assert findings.gone == (), "a listed defect is not there"
    return [f"{finding.case.name}: {finding.says}" for finding in findings.new]


def test_harmony_loses_nothing_else(encoder: Encoder) -> None:
    renderer: Any = Written(encoder)
    prompts = marked.render((*shapes(), *load_all(NOWHERE)), FAMILY, renderer)
    assert new("what_clients_send_is_rendered", marked.refused(prompts, (), FAMILY)) == []
    assert new("all_that_was_sent_is_in_the_prompt", marked.incomplete(prompts, (), FAMILY)) == []
    assert new("nothing_else_is_in_the_prompt", marked.unsent(prompts, (), FAMILY)) == []


def test_the_effort_is_written_and_none_is_refused(encoder: Encoder) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    assert "\nReasoning: high\n" in encoder.write({**body, "reasoning_effort": "high"})
    with pytest.raises(Refused, match="reasoning_effort='none'"):
        encoder.write({**body, "reasoning_effort": "none"})


def test_the_lanes_variables_fix_the_date(encoder: Encoder) -> None:
    written = encoder.write({"messages": [{"role": "user", "content": "Hi"}]})
    assert "\nCurrent date: 2026-01-02\n" in written


def test_prompts_come_from_the_module(encoder: Encoder) -> None:
    assert list(encoder.sources()) == ["vllm/entrypoints/openai/parser/harmony_utils.py"]
