"""The run's own server answers and ends; each combination boots once, answers and ends."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.adapters import AdapterServer

from pytest_vllm_gates.adapters import files
from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.client import http
from pytest_vllm_gates.features import catalog
from pytest_vllm_gates.outcomes import Blocked, NotApplicable
from pytest_vllm_gates.server import startup
from pytest_vllm_gates.server.startup_check import Startup
from pytest_vllm_gates.server.types import Boot, Failure
from pytest_vllm_gates.session import boot as session_boot
from pytest_vllm_gates.session.against.feature_boots import FeatureBoots
from pytest_vllm_gates.session.launch import Launch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.features.catalog import Combination

NOWHERE = Path("/nonexistent")
SHIPPED = files.of(Checkpoint("miniature", str(miniatures.path("qwen3.5"))), {}, NOWHERE)
WORDS = {one.name: one.begins for one in SHIPPED}


class Started:
    """A running server, as a boot returns it."""

    process = None

    def __init__(self, name: str, up: list[str], *, dies: bool = False) -> None:
        self.name, self.up, self.dies = name, up, dies
        up.append(name)

    def alive(self, _: float = 0.0) -> bool:
        return not self.dies

    def died(self) -> Failure:
        return Failure("EngineDeadError")

    def stop(self) -> int:
        if self.name in self.up:
            self.up.remove(self.name)
        return 0


class Boots:
    """Boots the same fake server each time, with the lane that it is given."""

    def __init__(self, server: AdapterServer, folder: Path) -> None:
        self.server, self.up = server, list[str]()
        self.lanes: list[Any] = []
        self.fails = self.dies = False
        self.own = Launch(Boot(endpoint=server.endpoint), Started("own", self.up))  # type: ignore[arg-type]
        lane = lanes.load("cpu", NOWHERE)
        run = SimpleNamespace(
            lane=lane, conversations=(), options=SimpleNamespace(answer_tokens=64),
            of=lambda lane: SimpleNamespace(lane=lane),
        )  # fmt: skip
        subject: Any = SimpleNamespace(
            family=families.load("qwen3.5", NOWHERE),
            checkpoint=SimpleNamespace(source="tiny", serve={}),
        )
        self.told: list[str] = []
        self.combinations = catalog.chosen(
            "no-prefix-caching,lora,lora-two", catalog.load(), gpus=False
        )
        self.boots = FeatureBoots(
            run, subject, self.own, folder, self.told.append, self.combinations, SHIPPED  # type: ignore[arg-type]
        )  # fmt: skip

    def boot(self, run: Any, _: Any, folder: Path, progress: Any) -> tuple[Boot, Started | None]:
        progress("booting")
        self.lanes.append(run.lane)
        if self.fails:
            return Boot(failure=Failure("no such flag")), None
        return Boot(endpoint=self.server.endpoint), Started(folder.name, self.up, dies=self.dies)


@pytest.fixture
def booting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Boots]:
    with running(AdapterServer(WORDS)) as server:
        boots = Boots(server, tmp_path)
        monkeypatch.setattr(session_boot, "boot", boots.boot)
        yield boots


def plain(booting: Boots) -> Combination:
    return booting.combinations[0]


def test_the_own_server_answers_first_and_then_ends(booting: Boots) -> None:
    assert booting.up == ["own"]
    boot = booting.boots.of(plain(booting))
    assert booting.up == []
    assert booting.boots.own.by_request.keys() == boot.answers.by_request.keys()
    assert boot.version == "0.32.0"
    assert not boot.death
    with pytest.raises(Blocked):
        booting.own.endpoint()


def test_a_combination_boots_once_with_its_flags_and_variables(booting: Boots) -> None:
    first = booting.boots.of(plain(booting))
    assert booting.boots.of(plain(booting)) is first
    (lane,) = booting.lanes
    assert lane.serve["enable_prefix_caching"] is False
    assert lane.serve["enforce_eager"] is True
    assert first.adapters is None
    assert booting.told[0] == "qwen3.5: features no-prefix-caching, boot 1 of 3"


def test_a_feature_that_stores_files_has_a_folder_that_goes_with_the_boot(booting: Boots) -> None:
    (connector,) = catalog.chosen("kv-connector", catalog.load(), gpus=False)
    booting.boots.of(connector)
    (lane,) = booting.lanes
    folder = booting.boots.folder / "1-stored"
    extra = lane.serve["kv_transfer_config"]["kv_connector_extra_config"]
    assert extra == {"shared_storage_path": str(folder)}
    assert not folder.exists()


def test_a_small_cache_is_that_of_the_own_server_and_is_filled(
    booting: Boots, monkeypatch: pytest.MonkeyPatch
) -> None:
    (small,) = catalog.chosen("small-cache", catalog.load(), gpus=False)
    booting.boots.combinations = (small,)
    cache = {"num_gpu_blocks": "4096", "block_size": "16"}
    told = Startup(figures={"kv_concurrency": 128.0}, cache=cache)
    monkeypatch.setattr(startup, "observe", lambda *_: told)
    monkeypatch.setattr(http, "token_ids", lambda *_: range(20))
    boot = booting.boots.of(small)
    (lane,) = booting.lanes
    assert lane.serve["num_gpu_blocks_override"] == "39"
    for answers in (boot.without, boot.answers):
        assert {"pressed 1", "pressed 8", "question 1, afterwards"} < {*answers.by_request}


def test_a_cache_of_unknown_size_is_not_made_small(booting: Boots) -> None:
    (small,) = catalog.chosen("small-cache", catalog.load(), gpus=False)
    booting.boots.combinations = (small,)
    with pytest.raises(NotApplicable, match="size of the KV cache"):
        booting.boots.of(small)
    assert not booting.lanes


def test_a_cache_is_handed_over_by_the_previous_server(booting: Boots) -> None:
    (handed,) = catalog.chosen("kv-handover", catalog.load(), gpus=False)
    boot = booting.boots.of(handed)
    roles = [lane.serve["kv_transfer_config"]["kv_role"] for lane in booting.lanes]
    assert roles == ["kv_producer", "kv_consumer"]
    folders = {
        lane.serve["kv_transfer_config"]["kv_connector_extra_config"]["shared_storage_path"]
        for lane in booting.lanes
    }
    assert folders == {str(booting.boots.folder / "1-stored")}
    assert boot.launch.ok
    assert boot.answers.by_request
    assert booting.up == []


def test_a_previous_server_that_does_not_boot_is_reported(booting: Boots) -> None:
    (handed,) = catalog.chosen("kv-handover", catalog.load(), gpus=False)
    booting.fails = True
    boot = booting.boots.of(handed)
    assert len(booting.lanes) == 1
    assert not boot.launch.ok


def test_a_connector_of_ours_is_on_the_import_path(booting: Boots) -> None:
    (failing,) = catalog.chosen("kv-load-fails", catalog.load(), gpus=False)
    booting.boots.of(failing)
    (lane,) = booting.lanes
    module = lane.serve["kv_transfer_config"]["kv_connector_module_path"]
    assert (Path(lane.env["PYTHONPATH"]) / f"{module}.py").is_file()


def test_counters_are_those_of_the_questions(booting: Boots) -> None:
    booting.server.hits = 400
    rose = booting.boots.of(plain(booting)).rose
    answered = len(booting.boots.own.by_request)
    assert rose == {"vllm:prefix_cache_hits_total": 16.0 * answered}


def test_as_many_adapters_are_served_as_the_feature_has(booting: Boots) -> None:
    _, one, two = booting.combinations
    for combination, names in ((one, ("sailor",)), (two, ("diary", "sailor"))):
        boot = booting.boots.of(combination)
        serve = booting.lanes[-1].serve
        assert serve["enable_lora"] is True
        assert serve["max_lora_rank"] == 8
        assert len(serve["lora_modules"]) == combination.adapters
        assert booting.lanes[-1].env["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
        assert boot.serve["lora_modules"] == serve["lora_modules"]
        assert boot.adapters
        assert {*names} <= {*boot.adapters.adapters}
        assert boot.adapters.loads


def test_a_checkpoint_without_adapters_boots_without_any(booting: Boots) -> None:
    booting.boots.adapters = ()
    boot = booting.boots.of(booting.combinations[1])
    assert "lora_modules" not in booting.lanes[-1].serve
    assert boot.adapters is None
    assert not boot.answers.errors


def test_a_boot_that_fails_is_returned_with_its_flags(booting: Boots) -> None:
    booting.fails = True
    boot = booting.boots.of(booting.combinations[1])
    assert not boot.launch.ok
    assert boot.answers.by_request == {}
    assert boot.serve["enable_lora"] is True


def test_an_engine_that_dies_of_the_questions_is_reported(booting: Boots) -> None:
    booting.dies = True
    boot = booting.boots.of(plain(booting))
    assert boot.death == "EngineDeadError"
    assert booting.up == []
