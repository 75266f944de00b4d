"""The requests of a load: to the token, alike for the same seed, and when they go out."""

from __future__ import annotations

import itertools
import json
import statistics

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.catalog.plans import planned_traffic
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.load.requests import Maker, arrivals, constant, poisson
from pytest_vllm_gates.load.trace import BLOCK_TOKENS, Arrival, BatchRequest

ENDPOINT = Endpoint("http://127.0.0.1:1/under/v1", "mini")
TRAFFIC = planned_traffic({"prompt_tokens": [20, 40], "output_tokens": [5, 9], "shared_tokens": 10})
TEXT = tuple(range(1000, 1400))


def test_requests_have_their_expected_lengths() -> None:
    made = Maker(ENDPOINT, TRAFFIC, TEXT).make("streams", [None] * 50)
    assert len({request.name for request in made.planned}) == 50
    for request in made.planned:
        body, lengths = json.loads(request.body), made.expected[request.name]
        assert request.path == "/under/v1/completions"
        assert len(body["prompt"]) == lengths.prompt_tokens
        assert (body["max_tokens"], body["ignore_eos"]) == (lengths.output_tokens, True)
        assert lengths.prompt_tokens in range(20, 41)
        assert lengths.output_tokens in range(5, 10)


def test_planned_share_of_prompts_begins_alike() -> None:
    made = Maker(ENDPOINT, TRAFFIC, TEXT).make("streams", [None] * 400)
    beginnings = [tuple(json.loads(request.body)["prompt"][:10]) for request in made.planned]
    most = max(map(beginnings.count, beginnings))
    assert most == pytest.approx(200, abs=40)


def test_requests_depend_on_the_seed_alone() -> None:
    maker = Maker(ENDPOINT, TRAFFIC, TEXT)
    once, again = (maker.make("one", [None] * 5).planned for _ in range(2))
    assert once == again
    different = maker.make("other", [None] * 5).planned
    assert {request.body for request in different}.isdisjoint(request.body for request in once)


def test_poisson_arrivals_have_their_rate_and_dispersion() -> None:
    times = poisson(50.0, 20_000, "seed")
    assert times[0] == 0.0
    assert times == sorted(times)
    assert times[-1] == pytest.approx(400.0, rel=0.03)
    counts = [0] * int(times[-1])
    for at in times:
        if int(at) < len(counts):
            counts[int(at)] += 1
    # The index of dispersion of a Poisson process is 1 (Cox and Lewis, 1966).
    assert statistics.variance(counts) / statistics.mean(counts) == pytest.approx(1.0, abs=0.15)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.03)


def test_a_constant_rate_has_equal_gaps() -> None:
    assert constant(4.0, 5) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert arrivals("constant", 4.0, 5, "seed") == constant(4.0, 5)
    assert arrivals("poisson", 4.0, 5, "seed") == poisson(4.0, 5, "seed")


@given(
    at_s=st.floats(0, 1e6),
    prompt=st.integers(1, 5000),
    output=st.integers(1, 5000),
    context=st.integers(2, 4000),
)
def test_a_trace_is_replayed_to_the_token_or_cut_to_fit(
    at_s: float, prompt: int, output: int, context: int
) -> None:
    maker = Maker(ENDPOINT, planned_traffic({"trace_speed": 4.0}), TEXT)
    made, cut = maker.replay("trace", [Arrival(at_s, prompt, output)], context)
    (request,) = made.planned
    body, lengths = json.loads(request.body), made.expected[request.name]
    assert request.at_s == at_s / 4
    assert (len(body["prompt"]), body["max_tokens"]) == (
        lengths.prompt_tokens,
        lengths.output_tokens,
    )
    assert 1 <= len(body["prompt"]) <= prompt
    assert 1 <= body["max_tokens"] <= output
    if prompt + output <= context:
        assert (len(body["prompt"]), body["max_tokens"], cut) == (prompt, output, 0)
    else:
        assert (len(body["prompt"]) + body["max_tokens"], cut) == (context, 1)


def prompts(*arrivals: Arrival) -> list[list[int]]:
    made, _ = Maker(ENDPOINT, TRAFFIC, TEXT).replay("trace", arrivals, 100_000)
    return [json.loads(request.body)["prompt"] for request in made.planned]


def test_prompts_with_the_same_block_ids_begin_alike() -> None:
    first, second, third = prompts(
        Arrival(0.0, 1500, 1, (0, 1, 2)),
        Arrival(0.0, 1200, 1, (0, 1, 3)),
        Arrival(0.0, 1500, 1, (4, 1, 2)),
    )
    assert first[: 2 * BLOCK_TOKENS] == second[: 2 * BLOCK_TOKENS]
    assert first[2 * BLOCK_TOKENS : 1200] != second[2 * BLOCK_TOKENS :]
    assert first[:BLOCK_TOKENS] != third[:BLOCK_TOKENS]
    assert first[BLOCK_TOKENS:] == third[BLOCK_TOKENS:]


def test_prompts_without_block_ids_share_no_beginning() -> None:
    made = prompts(*[Arrival(0.0, 600, 1)] * 200)
    assert len({tuple(prompt[:16]) for prompt in made}) == 200
    assert prompts(*[Arrival(0.0, 600, 1)] * 200) == made


def test_batch_requests_are_sent_unchanged_but_model_and_stream() -> None:
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0.3}
    with_options = {**body, "stream_options": {"include_usage": False, "more": 1}}
    requests = [
        BatchRequest("a", "/v1/chat/completions", body),
        BatchRequest("b", "/v1/completions", {"prompt": "Once"}),
        BatchRequest("c", "/v1/chat/completions", with_options),
    ]
    made = Maker(ENDPOINT, TRAFFIC, TEXT).from_batch(requests, [0.0, 0.5, 1.0])
    assert [(request.name, request.path, request.at_s) for request in made.planned] == [
        ("a", "/under/v1/chat/completions", 0.0),
        ("b", "/under/v1/completions", 0.5),
        ("c", "/under/v1/chat/completions", 1.0),
    ]
    counted = {"include_usage": True, "continuous_usage_stats": True}
    first, second, third = (json.loads(request.body) for request in made.planned)
    assert first == {**body, "model": "mini", "stream": True, "stream_options": counted}
    assert second["prompt"] == "Once"
    assert third["stream_options"] == {**counted, "more": 1}
    assert made.expected["a"].output_tokens is None
