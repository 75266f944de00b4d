"""The requests of a load: to the token, alike for the same seed, and when they go out."""

from __future__ import annotations

import itertools
import json
import statistics

import pytest

from pytest_vllm_gates.drive.traffic import Maker, poisson
from pytest_vllm_gates.facts.launch import Endpoint
from pytest_vllm_gates.facts.traffic import planned

ENDPOINT = Endpoint("http://127.0.0.1:1/under/v1", "mini")
TRAFFIC = planned({"prompt_tokens": [20, 40], "output_tokens": [5, 9], "shared_tokens": 10})
TEXT = tuple(range(1000, 1400))


def test_requests_have_the_lengths_they_say() -> None:
    made = Maker(ENDPOINT, TRAFFIC, TEXT).make("streams", [None] * 50)
    assert len({one.name for one in made.planned}) == 50
    for one in made.planned:
        body, asked = json.loads(one.body), made.asked[one.name]
        assert one.path == "/under/v1/completions"
        assert len(body["prompt"]) == asked.prompt_tokens
        assert (body["max_tokens"], body["ignore_eos"]) == (asked.output_tokens, True)
        assert asked.prompt_tokens in range(20, 41)
        assert asked.output_tokens in range(5, 10)


def test_so_many_begin_alike_as_are_to_share_their_beginning() -> None:
    made = Maker(ENDPOINT, TRAFFIC, TEXT).make("streams", [None] * 400)
    beginnings = [tuple(json.loads(one.body)["prompt"][:10]) for one in made.planned]
    most = max(map(beginnings.count, beginnings))
    assert most == pytest.approx(200, abs=40)


def test_the_same_seed_makes_the_same_bytes_and_another_others() -> None:
    maker = Maker(ENDPOINT, TRAFFIC, TEXT)
    once, again = (maker.make("one", [None] * 5).planned for _ in range(2))
    assert once == again
    other = maker.make("other", [None] * 5).planned
    assert {one.body for one in other}.isdisjoint(one.body for one in once)


def test_requests_that_come_independently_are_as_many_as_asked_for_and_spread_as_they_should() -> (
    None
):
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
