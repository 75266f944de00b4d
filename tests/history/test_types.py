"""A run's entry in the history comes from its verdict."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_vllm_gates.history.types import FIGURES, FILE, entry
from pytest_vllm_gates.options.defaults import HISTORY

MACHINE = {"gpus": [], "cpu": "AMD EPYC", "cores": 2}


def gate(name: str, *evidence: dict[str, Any]) -> dict[str, Any]:
    return {"gate": name, "tests": [{"evidence": fields} for fields in evidence]}


def family(*gates: dict[str, Any], boot: Any = None) -> dict[str, Any]:
    return {
        "name": "glm",
        "checkpoint": {"name": "miniature"},
        "boot": boot,
        "gates": [*gates],
    }


def document(*families: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "created": "2026-11-22T08:37:08+00:00",
        "command": ["pytest"],
        "promotion": "HOLD",
        "reasons": ["held"],
        "exit_status": 6,
        "lane": {"name": "cpu", "versions": {"torch": "2.11", "vllm": "0.32.0", "numpy": "2"}},
        "machine": MACHINE,
        "families": [*families],
        "against": None,
        **changes,
    }


WHOLE = family(
    gate("boot", {"server_version": "0.32.0+cpu"}),
    gate("startup", {"kv_tokens": 1315779.0}, {"told": {}}),
    gate(
        "load",
        {"server": {}},
        {"figures": {"streams": {"goodput_per_s": 9.0}, "arrivals": {"goodput_per_s": 6.011}}},
    ),
    gate(
        "throughput",
        {"figures": {"output_tokens_per_s": 896.1, "ttft_s": 0.06, "itl_s": 0.007, "blocks": 32}},
    ),
    boot={"times": {"health_s": 52.0, "first_chat_s": 53.0, "first_token_s": None}},
)


def test_main_figures_come_from_gates_evidence() -> None:
    history_entry = entry(document(WHOLE))
    assert history_entry.figures == {
        "glm": {
            "boot_s": 53.0,
            "output_tokens_per_s": 896.1,
            "ttft_s": 0.06,
            "itl_s": 0.007,
            "kv_tokens": 1315779.0,
            "goodput_per_s": 6.011,
        }
    }
    assert tuple(history_entry.figures["glm"]) == FIGURES
    assert history_entry.document()["figures"]["glm: boot_s"] == 53.0
    assert (history_entry.lane, history_entry.against, history_entry.machine) == (
        "cpu",
        None,
        "AMD EPYC, 2 cores",
    )
    assert history_entry.versions == {"vllm": "0.32.0", "torch": "2.11"}
    assert history_entry.checkpoints == {"glm": "miniature"}
    assert (history_entry.promotion, history_entry.reasons, history_entry.exit_status) == (
        "HOLD",
        ("held",),
        6,
    )


@pytest.mark.parametrize(
    "measured_family",
    [
        family(),
        family(boot={"times": None}),
        family(gate("throughput", {"figures": {"output_tokens_per_s": None}}), gate("load")),
        family(gate("load", {"figures": {"streams": {"goodput_per_s": 1.0}}})),
    ],
)
def test_missing_measurement_has_no_figure(measured_family: dict[str, Any]) -> None:
    assert entry(document(measured_family)).figures == {"glm": {}}


def test_attached_server_reports_its_own_version() -> None:
    attached = {"name": "base-url", "versions": {}}
    assert entry(document(WHOLE, lane=attached)).versions == {"vllm": "0.32.0+cpu"}
    assert entry(document(family(), lane=attached)).versions == {}


def test_machine_is_its_gpus_and_other_lane_is_named() -> None:
    machine = {**MACHINE, "gpus": ["H100", "H100"]}
    history_entry = entry(document(machine=machine, against={"lane": {"name": "stable"}}))
    assert (history_entry.machine, history_entry.against) == ("H100, H100", "stable")


def test_default_file_is_the_options_default() -> None:
    assert str(FILE) == HISTORY
