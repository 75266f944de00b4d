"""Requests fill a small cache to less than a block each, and their answers need one more."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.client.questions import load
from pytest_vllm_gates.features import pressure
from pytest_vllm_gates.features.pressure import CachePressure
from pytest_vllm_gates.server.startup_check import Startup

QWEN = next(one for one in families.load_all(Path("/nowhere")) if one.name == "qwen3.5")


def told(blocks: int = 4096, size: int = 128, concurrency: float = 128.0) -> Startup:
    cache = {"num_gpu_blocks": str(blocks), "block_size": str(size)}
    return Startup(figures={"kv_concurrency": concurrency}, cache=cache)


def test_cache_has_room_for_one_request_of_full_context() -> None:
    found = pressure.of(told(), {})
    assert found
    assert found.blocks == 39  # 32 are for one request
    assert found.at_once == pressure.COMPANY


def test_requests_do_not_exceed_the_servers_concurrency() -> None:
    found = pressure.of(told(), {"max_num_seqs": 4})
    assert found
    assert found.at_once == 4


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(Startup(), id="nothing"),
        pytest.param(Startup(figures={"kv_concurrency": 3.0}), id="no metrics"),
        pytest.param(
            Startup(cache={"num_gpu_blocks": "None", "block_size": "16"}), id="no log, no number"
        ),
    ],
)
def test_server_that_does_not_tell_its_cache_is_not_pressed(start: Startup) -> None:
    assert pressure.of(start, {}) is None


@pytest.mark.parametrize("blocks", range(9, 80))
@pytest.mark.parametrize("size", [16, 128, 544])
def test_prompts_have_room_and_their_answers_have_not(blocks: int, size: int) -> None:
    found = CachePressure(blocks, size, 8)
    of_prompt = -(-found.prompt_tokens // size)
    of_whole = -(-(found.prompt_tokens + found.answer_tokens) // size)
    assert 8 * of_prompt <= blocks < 8 * of_whole


def test_requests_differ_from_their_first_words_on() -> None:
    found = CachePressure(39, 128, 8)
    bodies = found.bodies(QWEN, load(), filler_tokens=20)
    texts = [body["messages"][0]["content"] for body in bodies.values()]
    assert len({text[:8] for text in texts}) == 8
    assert {body["max_tokens"] for body in bodies.values()} == {found.answer_tokens}
    fillers = {text.count(load().filler) for text in texts}
    assert fillers == {(found.prompt_tokens - pressure.QUESTION_TOKENS) // 20}
