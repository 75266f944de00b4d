"""`verdict.json` fits its schema for any run, and has no secrets."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.catalog.lane import Lane
from pytest_vllm_gates.catalog.waivers import Waiver, of_lane
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.diagnosis import explain, signature
from pytest_vllm_gates.environment.types import Bundle, Kernels
from pytest_vllm_gates.machine.types import Machine
from pytest_vllm_gates.outcomes import GONE, STANDING, Outcome, TestResult
from pytest_vllm_gates.report import document
from pytest_vllm_gates.report.environment import bundle_document
from pytest_vllm_gates.server.types import Boot, BootTimes, Failure
from pytest_vllm_gates.verdict.verdict import Verdict, decide

SCHEMA = jsonschema.Draft202012Validator(json.loads(document.SCHEMA.read_text()))
MACHINE = Machine(os="Linux", python="3.11.7", cpu="x", cores=2, memory_bytes=None, gpus=())
BUNDLE = Bundle({"vllm": "0.32.0", "numpy": "2"}, device="cuda", torch_kernels=Kernels((90,)))
BOOTED = Boot(
    endpoint=Endpoint("http://127.0.0.1:1/v1", "alias", "the-key"),
    times=BootTimes(health_s=1.0, first_chat_s=2.0, first_token_s=0.5),
    evidence={"log": Path("/x/server.log"), "boot_attempts": 1},
)
FAILED = Boot(failure=Failure("it died", log=Path("/x.log"), excerpt=("a line",), hint="look"))
LOGS = {
    "KV_NONE": b"ValueError: No available memory for the cache blocks.\nfalling back\n",
    "UNKNOWN": b"before\nValueError: nobody has seen this\n",
    "ENGINE_INIT": b"RuntimeError: Engine core initialization failed. See root cause above.\n",
    None: b"all is well\n",
}


def facts(boot: Boot | None = BOOTED, **env: str) -> document.ReportFacts:
    lane = Lane(name="cpu", file=Path("/x"), title="a lane", python="/py", env=env)
    return document.ReportFacts(
        command=["pytest", "--model", "qwen3.5"],
        lane=lane,
        lane_why="asked for",
        repairs=["rotary: mends"],
        versions={"vllm": "0.32.0"},
        machine=MACHINE,
        checkpoints={"qwen3.5": Checkpoint(name="miniature", source="/weights")},
        boots={"qwen3.5": boot} if boot else {},
        inventory=bundle_document(BUNDLE),
    )


def verdict(*outcomes: Outcome, **evidence: Any) -> Verdict:
    results = [
        TestResult(
            "qwen3.5",
            "boot",
            f"test_{outcome}",
            outcome,
            "why",
            duration_s=0.12345,
            evidence=evidence,
        )
        for outcome in outcomes
    ]
    return decide(results, {"qwen3.5": ["boot"]})


def composed(boot: Boot | None, verdict: Verdict, **env: str) -> dict[str, Any]:
    report: dict[str, Any] = document.compose(facts(boot, **env), verdict, 1)
    # As it is written: paths and the like are text there.
    return dict(json.loads(json.dumps(report, default=str)))


@pytest.mark.parametrize("boot", [BOOTED, FAILED, None], ids=["booted", "failed", "none"])
@pytest.mark.parametrize("outcomes", [(), *((outcome,) for outcome in Outcome), tuple(Outcome)])
def test_every_run_fits_the_schema(boot: Boot | None, outcomes: tuple[Outcome, ...]) -> None:
    SCHEMA.validate(composed(boot, verdict(*outcomes)))


@pytest.mark.parametrize("name", LOGS)
def test_explained_log_fits_the_schema(name: str | None) -> None:
    explanation = explain.explain([LOGS[name]], signature.load_all())
    failure = Failure("it died", explanation=explanation)
    report = composed(Boot(failure=failure), verdict(Outcome.FAIL))
    SCHEMA.validate(report)
    (family,) = report["families"]
    assert family["boot"]["explanation"]["id"] == name
    first = failure.explain().splitlines()[0]
    assert first == "it died" if name is None else first.startswith(f"it died: {name}, ")


def test_schema_is_valid() -> None:
    SCHEMA.check_schema(SCHEMA.schema)
    broken = composed(BOOTED, verdict(Outcome.PASS)) | {"promotion": "MAYBE", "more": 1}
    assert len(list(SCHEMA.iter_errors(broken))) == 2


def test_a_test_is_reported_with_outcome_reason_and_evidence() -> None:
    report = composed(BOOTED, verdict(Outcome.INCONCLUSIVE, seen=3))
    (gate,) = report["families"][0]["gates"]
    assert (gate["gate"], gate["outcome"], gate["duration_s"]) == ("boot", "INCONCLUSIVE", 0.123)
    assert gate["tests"] == [
        {
            "test": "test_INCONCLUSIVE",
            "outcome": "INCONCLUSIVE",
            "reason": "why",
            "duration_s": 0.123,
            "evidence": {"seen": 3},
        }
    ]
    assert report["promotion"] == "HOLD"
    assert report["reasons"] == ["qwen3.5: boot is INCONCLUSIVE: why", "no gate passed"]


def test_known_defects_are_reported_beside_the_reasons() -> None:
    report = composed(BOOTED, verdict(Outcome.KNOWN, **{STANDING: ["lost (#1)"], GONE: ["x (#2)"]}))
    SCHEMA.validate(report)
    assert report["known_defects"] == {
        "standing": ["qwen3.5: boot: lost (#1)"],
        "gone": ["qwen3.5: boot: x (#2)"],
    }
    assert composed(BOOTED, verdict(Outcome.PASS))["known_defects"] == {"standing": [], "gone": []}


def test_waivers_are_reported_with_their_state() -> None:
    until = datetime.date(2026, 12, 1)
    waiver = Waiver(check="qwen3.5: boot", who="Jane", why="a fix comes", until=until)
    waived = [
        TestResult("qwen3.5", "boot", f"test_{outcome}", outcome)
        for outcome in (Outcome.PASS, Outcome.WAIVED)
    ]
    settled = of_lane([waiver], "cpu", until).settle(waived)
    report = composed(BOOTED, decide(waived, {"qwen3.5": ["boot"]}, waivers=settled))
    SCHEMA.validate(report)
    assert report["promotion"] == "PROMOTE"
    assert report["waivers"] == [
        {
            "check": "qwen3.5: boot",
            "who": "Jane",
            "why": "a fix comes",
            "until": "2026-12-01",
            "state": "used",
        }
    ]


def test_a_boot_is_reported_with_its_times_or_its_failure() -> None:
    booted, failed = (
        composed(boot, verdict(Outcome.PASS))["families"][0]["boot"] for boot in (BOOTED, FAILED)
    )
    assert booted["times"] == {"health_s": 1.0, "first_chat_s": 2.0, "first_token_s": 0.5}
    assert failed["failure"].splitlines() == [
        "it died", "", "from the log:", "    a line", "", "whole log: /x.log", "next: look",
    ]  # fmt: skip


def test_document_has_no_secrets() -> None:
    report = composed(BOOTED, verdict(Outcome.PASS), HF_TOKEN="hf_1", MY_API_KEY="sk-2", A="b")
    text = json.dumps(report)
    assert not any(secret in text for secret in ("hf_1", "sk-2", "the-key"))
    assert report["lane"]["env"] == {"HF_TOKEN": "[redacted]", "MY_API_KEY": "[redacted]", "A": "b"}


def test_document_has_the_lanes_inventory() -> None:
    inventory = composed(BOOTED, verdict(Outcome.PASS))["lane"]["inventory"]
    assert inventory["versions"] == {"vllm": "0.32.0"}
    assert (inventory["device"], inventory["torch_kernels"]) == (
        "cuda",
        {"machine_code": [90], "ptx": []},
    )


def test_document_is_written_whole_and_readable(tmp_path: Path) -> None:
    path = document.write(tmp_path / "out", {"é": Path("/x")})
    assert path == tmp_path / "out" / "verdict.json"
    assert path.read_text() == '{\n  "é": "/x"\n}\n'
