"""All requests are sent to a server with adapters, and a healthy one passes every check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from servers import running
from servers.adapters import BASE, AdapterServer

from pytest_vllm_gates.adapters import checks, files
from pytest_vllm_gates.adapters.ask import LONG, AdapterWalk
from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.checkpoints import miniatures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.adapters.types import AdapterAnswers

FAMILY = families.load("qwen3.5", Path("/nonexistent"))
SHIPPED = files.of(Checkpoint("miniature", str(miniatures.path("qwen3.5"))), {}, Path())
WORDS = {one.name: one.begins for one in SHIPPED}


@pytest.fixture
def server() -> Iterator[AdapterServer]:
    with running(AdapterServer(WORDS)) as server:
        yield server


def walked(server: AdapterServer, folder: Path | None) -> AdapterAnswers:
    walk = AdapterWalk(server.endpoint, FAMILY, SHIPPED, {*WORDS})
    return walk.run(folder, 8)


def test_all_requests_are_sent(server: AdapterServer, tmp_path: Path) -> None:
    answers = walked(server, tmp_path)
    assert answers.adapters == ("diary", "sailor")
    assert answers.base == (BASE,)
    assert answers.begins == WORDS
    assert len(answers.alone) == 12
    assert [one.requested for one in answers.warm] == ["diary", "sailor", ""] * 2
    assert {one.requested for one in answers.company} == {"", "diary", "sailor"}
    assert all(one.completion.request["stream"] for one in answers.company)
    assert len(answers.company) == 8
    assert answers.cached_tokens == 6 * 16
    assert [step.name for step in answers.unfit] == [
        "a rank that is too high", "a smaller base model", "a larger base model",
        "unknown layers", "no weights",
    ]  # fmt: skip
    assert {step.status for step in answers.unfit} == {500}
    assert [step.status for step in answers.loads] == [200, 200, 404, 200, 200]
    assert {*server.loaded} == {*WORDS}, "what was loaded is taken out again"
    assert answers.broke == answers.no_loading == ""
    for check in (checks.lists, checks.names, checks.differ, checks.refuses, checks.refuses_unfit):
        assert check(answers)[0] == []
    for compared in (checks.stays, checks.apart, checks.on_prefixes, checks.loads):
        assert compared(answers, invariant=True)[0] == []


def test_the_long_prompt_is_cold_under_each_model_and_warm_under_the_next(
    server: AdapterServer,
) -> None:
    answers = walked(server, None)
    salts = [one.completion.request["cache_salt"] for one in answers.cold]
    assert len({*salts}) == 3
    warm = {one.completion.request["cache_salt"] for one in answers.warm}
    assert len(warm) == 1
    assert not warm & {*salts}
    assert {one.question for one in (*answers.cold, *answers.warm)} == {LONG}


def test_a_server_that_runs_already_gets_nothing_loaded(server: AdapterServer) -> None:
    answers = walked(server, None)
    assert answers.no_loading == "this run did not start the server"
    assert answers.loads == answers.unfit == []
    assert not any("lora_adapter" in request.path for request in server.requests_seen)


def test_a_server_without_the_routes_gets_nothing_loaded(tmp_path: Path) -> None:
    with running(AdapterServer(WORDS, loads=False)) as server:
        answers = walked(server, tmp_path)
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING" in answers.no_loading
    assert answers.base_after


def test_server_without_adapters_only_lists_its_models(tmp_path: Path) -> None:
    with running(AdapterServer({})) as server:
        answers = AdapterWalk(server.endpoint, FAMILY, SHIPPED, set()).run(tmp_path, 8)
    assert answers.adapters == ()
    assert [request.path for request in server.requests_seen] == ["/v1/models"]


def test_dead_server_is_reported() -> None:
    with running(AdapterServer(WORDS)) as server:
        endpoint = server.endpoint
    answers = AdapterWalk(endpoint, FAMILY, SHIPPED, {*WORDS}).run(None, 8)
    assert answers.broke.startswith("ConnectError")
    assert answers.adapters == ("diary", "sailor")
