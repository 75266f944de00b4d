"""The earliest error of a log is found under any prefix, not the wrapper around it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.server.log import (
    BLOCK_BYTES,
    LogWatch,
    blocks,
    earliest_error,
    read_from,
    without_prefix,
)

if TYPE_CHECKING:
    from pathlib import Path

STAMP = "11-20 10:00:00"
PREFIXES = [
    "",
    "(APIServer pid=812) ",
    "(EngineCore pid=900) ",
    "(EngineCore_DP0 pid=900) ",
    "(Worker_TP1 pid=901) ",
    "(Worker_DP0_TP1_EP1 pid=901) ",
    "(VllmWorker rank=0 pid=902) ",
    "[rank0]: ",
    f"ERROR {STAMP} [core.py:1512] ",
    f"INFO {STAMP} [v1/engine/core.py:7] ",
    f"(EngineCore pid=900) ERROR {STAMP} [core.py:1512] ",
    f"(EngineCore_DP0 pid=900) (Worker_TP1 pid=901) WARNING {STAMP} [worker.py:3] ",
    f"(VllmWorker rank=1 pid=902) ERROR {STAMP} [multiproc_executor.py:442] ",
]
NOISE = [
    "INFO 11-20 09:59:00 [api_server.py:1] vLLM API server version 0.32.0",
    "INFO 11-20 09:59:01 [arg_utils.py:2] non-default args: {'model': 'x', 'enforce_eager': True}",
    "WARNING 11-20 09:59:02 [config.py:3] Casting torch.bfloat16 to torch.float32.",
    "/x/y.py:3: FutureWarning: The pynvml package is deprecated.",
    "Loading safetensors checkpoint shards: 100% Completed | 1/1 [00:00<00:00, 90.1it/s]",
]
WRAPPERS = [
    "RuntimeError: Engine core initialization failed. See root cause above. "
    "Failed core proc(s): {}",
    "RuntimeError: WorkerProc failed to start.",
    "Exception: WorkerProc initialization failed due to an exception in a background process. "
    "See stack trace for root cause.",
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. "
    "See stack trace (above) for the root cause.",
    "EngineCore failed to start.",
]
CAUSES = [
    "ValueError: No available memory for the cache blocks. Try increasing it.",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
    "OSError: [Errno 98] Address already in use",
    "KeyError: 'invalid tool call parser: x (chose from { hermes })'",
    "AssertionError: Error in memory profiling.",
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
    "ImportError: /x/vllm/_C.abi3.so: undefined symbol: _ZN5torch3jit17parse",
    "/x/main.c:5:10: fatal error: Python.h: No such file or directory",
    "huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo for url",
    "api_server.py: error: unrecognized arguments: --no-such-flag",
    "cannot start /opt/none/bin/python: No such file or directory",
    "Fatal Python error: Segmentation fault",
    "KeyboardInterrupt: terminated",
]
SILENCE_S = 0.2


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def write(log: Path, *lines: str) -> Path:
    log.write_text("".join(f"{line}\n" for line in lines))
    return log


@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefixes_are_stripped_from_a_line(prefix: str) -> None:
    assert without_prefix(f"{prefix}RuntimeError: no  \n") == "RuntimeError: no"
    assert without_prefix(f"{prefix}    indented code") == "    indented code"


@pytest.mark.parametrize(
    "line", ["[INFO] my own log", "ERROR without a time", "{'rank': 0}", "(x) y"]
)
def test_what_only_looks_like_a_prefix_stays(line: str) -> None:
    assert without_prefix(line) == line


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_cause_is_found_under_any_prefix_before_its_wrappers(
    log: Path, cause: str, prefix: str
) -> None:
    write(log, *NOISE, prefix + cause, *(prefix + line for line in WRAPPERS))
    lines_found = earliest_error(log)
    assert cause in lines_found
    assert WRAPPERS[-1] not in lines_found


def test_first_of_several_errors_is_returned(log: Path) -> None:
    later = [f"later {number}" for number in range(9)]
    lines_found = earliest_error(write(log, *NOISE, CAUSES[0], *later, CAUSES[1]))
    assert CAUSES[0] in lines_found
    assert CAUSES[1] not in lines_found


def test_an_error_comes_with_the_lines_around_it(log: Path) -> None:
    lines = [f"line {number}" for number in range(9)]
    lines_found = earliest_error(write(log, *lines, CAUSES[0], *(f"after {n}" for n in range(9))))
    assert lines_found == ("line 7", "line 8", CAUSES[0], "after 0", "after 1")


def test_error_repeated_by_ranks_is_reported_once(log: Path) -> None:
    error_line = f"ERROR {STAMP} [w.py:1] {CAUSES[0]}"
    repeated = [f"(Worker_TP{rank} pid={rank}) {error_line}" for rank in (1, 2)]
    assert earliest_error(write(log, "start", *repeated, "end")).count(CAUSES[0]) == 1


def test_a_log_of_wrappers_alone_gives_its_last_lines(log: Path) -> None:
    assert WRAPPERS[0] in earliest_error(write(log, *NOISE, WRAPPERS[0], "end"))


def test_a_log_without_an_error_gives_its_last_lines(log: Path) -> None:
    lines_found = earliest_error(write(log, *(f"line {number}" for number in range(100)), "", "  "))
    assert lines_found[-1] == "line 99"
    assert len(lines_found) == 12


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-20 09:59:00 [a.py:1] Route: /v1/errors, Methods: POST",
        "INFO 11-20 09:59:00 [a.py:1] error_on_recompile=True, raise_error=False",
        "/x.py:1: DeprecationWarning: the old Error: is deprecated",
        "INFO 11-20 09:59:00 [a.py:1] Using ErrorHandler for requests",
    ],
)
def test_line_that_only_mentions_errors_is_not_an_error(log: Path, line: str) -> None:
    assert CAUSES[0] in earliest_error(write(log, line, *NOISE, CAUSES[0]))
    assert line not in earliest_error(write(log, line, *NOISE, CAUSES[0]))


def test_missing_or_empty_log_has_no_error(log: Path) -> None:
    assert earliest_error(log) == ()
    log.touch()
    assert earliest_error(log) == ()


def test_undecodable_bytes_do_not_hide_an_error(log: Path) -> None:
    log.write_bytes(b"\xff\xfe progress\n" + CAUSES[0].encode() + b"\n")
    assert CAUSES[0] in earliest_error(log)


def test_a_progress_bar_does_not_bury_the_error(log: Path) -> None:
    log.write_text("Loading: 10%\rLoading: 20%\rLoading: 100%\n" + CAUSES[0] + "\n")
    assert CAUSES[0] in earliest_error(log)


def test_a_growing_log_is_not_silent(log: Path) -> None:
    chunks: list[str] = []
    watch = LogWatch(log, chunks.append)
    time.sleep(SILENCE_S)
    assert watch.silent_s() >= SILENCE_S
    log.write_text("(APIServer pid=1) INFO 11-20 10:00:00 [a.py:1] half")
    assert watch.silent_s() < SILENCE_S
    assert watch.last_line == "half"
    with log.open("a") as file:
        file.write(" a line\n\n10%\r20%\r")
    assert watch.silent_s() < SILENCE_S
    assert watch.last_line == "20%"
    assert "".join(chunks) == log.read_bytes().decode()


def test_a_log_that_grows_by_blank_lines_keeps_its_last_words(log: Path) -> None:
    watch = LogWatch(log)
    log.write_text("loading\n")
    watch.silent_s()
    log.write_text("loading\n\n\n")
    watch.silent_s()
    assert watch.last_line == "loading"


def test_truncated_log_counts_as_progress_and_is_read_on(log: Path) -> None:
    watch = LogWatch(log)
    log.write_text("a long first line\n")
    watch.silent_s()
    log.write_text("new\n")
    assert watch.silent_s() < SILENCE_S


def test_log_is_read_from_the_last_position(log: Path) -> None:
    log.write_bytes("één\ntwee\n".encode())
    assert read_from(log, len("één\n".encode())) == "twee\n"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"no end",
        b"one\ntwo\n",
        b"10%\r20%\r",
        b"x" * 100 + b"\n",
        (b"a line of a log\n" * (BLOCK_BYTES // 8)),
        b"x" * (3 * BLOCK_BYTES),
    ],
    ids=["empty", "one", "two", "bar", "long", "large", "endless"],
)
def test_a_log_is_read_in_blocks_of_whole_lines(log: Path, text: bytes) -> None:
    log.write_bytes(text)
    parts = list(blocks(log))
    assert b"".join(parts) == text
    assert all(len(data) <= 2 * BLOCK_BYTES for data in parts)
    assert b"\n" not in text or all(data.endswith((b"\n", b"\r")) for data in parts)
