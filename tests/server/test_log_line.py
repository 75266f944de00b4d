"""Every prefix before the program's own text is removed from a log line."""

from __future__ import annotations

import json

import pytest

from pytest_vllm_gates.server.log_line import LogLine, free

SAID = "ValueError: no memory {'a': 1}"
STAMP = "11-20 10:00:00"
ISO = "2026-11-20T10:00:00.123456789Z"
PROCESSES = {
    "": "",
    "(EngineCore pid=12) ": "EngineCore",
    "(EngineCore_DP0 pid=12) ": "EngineCore_DP0",
    "(Worker_TP1 pid=12) ": "Worker_TP1",
    "(VllmWorker rank=3 pid=12) ": "VllmWorker 3",
    "(RayWorkerWrapper pid=12, ip=10.0.0.1) ": "RayWorkerWrapper",
    "(pid=12) ": "",
    "(raylet) ": "raylet",
    "[rank2]: ": "rank2",
    "(EngineCore_DP0 pid=12) (Worker_TP1 pid=13) ": "Worker_TP1",
    "\x1b[1;36m(EngineCore pid=12)\x1b[0;0m ": "EngineCore",
}
LEVELS = {
    "": "",
    f"ERROR {STAMP} [core.py:1512] ": "ERROR",
    f"WARNING {STAMP} [v1/engine/core.py:7] ": "WARNING",
    f"INFO {STAMP} llm_engine.py:72] ": "INFO",
    "INFO 2026-11-20 10:00:00,123 [a.py:1] ": "INFO",
    "2026-11-20 10:00:00,123 ERROR worker.py:12 -- ": "ERROR",
    "2026-11-20 10:00:00,123 - vllm.engine - ERROR - ": "ERROR",
    "ERROR:    ": "ERROR",
}
COLLECTORS = [
    "",
    f"{ISO} ",
    f"{ISO} stdout F ",
    "2026-11-20T10:00:00.1+01:00 stderr P ",
    "[pod/vllm-0/server] ",
    f"[pod/vllm-0/server] {ISO} ",
    "Nov 20 10:00:00 host vllm[123]: ",
    "<30>Nov  2 10:00:00 host docker/vllm[123]: ",
    "2026-11-20T10:00:00+0000 host python3[1]: ",
    "<14>1 2026-11-20T10:00:00Z host vllm 12 - - ",
    "vllm-server-1  | ",
]


@pytest.mark.parametrize("collector", COLLECTORS)
def test_every_prefix_is_stripped(collector: str) -> None:
    read = {
        (process, level): free(f"{collector}{process}{level}{SAID}  \n")[:3]
        for process in PROCESSES
        for level in LEVELS
    }
    assert read == {
        (process, level): (SAID, LEVELS[level], PROCESSES[process]) for process, level in read
    }


@pytest.mark.parametrize("key", ["log", "message", "MESSAGE", "msg"])
def test_json_line_is_unwrapped(key: str) -> None:
    raw = f'(EngineCore pid=1) ERROR {STAMP} [a.py:1] \x1b[31mit said "no"\x1b[0m\n'
    line = json.dumps({key: raw, "stream": "stderr", "time": ISO})
    assert free(line) == LogLine('it said "no"', "ERROR", "EngineCore")
    assert free(f"{ISO} stdout F {line}").text == 'it said "no"'


@pytest.mark.parametrize(
    "line",
    [
        "[INFO] my own",
        "ERROR without a time",
        "{'rank': 0}",
        "(x) y",
        '{"a": 1}',
        "{broken",
        '{"log": 1}',
        '["a"]',
        "[1]: x",
    ],
)
def test_what_only_looks_like_a_prefix_stays(line: str) -> None:
    assert free(line).text == line


def test_indentation_stays_and_ray_repetition_is_removed() -> None:
    line = f"(EngineCore pid=1) ERROR {STAMP} [a.py:1]     raise it"
    assert free(line).text == "    raise it"
    repeated = "(Worker pid=1, ip=10.0.0.1) no memory [repeated 3x across cluster]"
    assert free(repeated) == LogLine("no memory", "", "Worker", "10.0.0.1")


@pytest.mark.parametrize(
    ("line", "node"),
    [
        ("[pod/vllm-0/vllm] no memory", "vllm-0/vllm"),
        ("Nov 20 10:00:00 spark-1 vllm[12]: no memory", "spark-1"),
        ("(RayWorkerWrapper pid=12, ip=10.0.0.1) no memory", "10.0.0.1"),
        ("spark-2:901:1004 [0] net_socket.cc:200 NCCL WARN no memory", "spark-2"),
        ("no memory", ""),
    ],
)
def test_the_node_that_printed_a_line_is_known(line: str, node: str) -> None:
    assert free(line).node == node


def test_quotation_marks_of_web_pages_are_plain() -> None:
    assert free("\u2018a\u2019 \u201cb\u201d\xa0c").text == "'a' \"b\" c"


def test_number_of_stripped_prefixes_is_bounded() -> None:
    assert free("(pid=1) " * 9 + "x") == LogLine("(pid=1) x", "", "")
    assert free("[pod/a] " * 9 + "x").text == "[pod/a] x"


def test_json_without_a_log_field_stays() -> None:
    assert free(f'{ISO} {{"a": 1}}').text == '{"a": 1}'


def test_too_deeply_nested_json_stays() -> None:
    assert free('{"a":' * 100_000).text.startswith('{"a":{"a":')


def test_endless_line_is_cut() -> None:
    assert len(free("x" * 10**6).text) < 10**5
