"""Traces are recognised, read line by line, and refused with file, line and what to do."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.catalog.plans import planned_traffic
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.load import traces
from pytest_vllm_gates.load.trace import Arrival, BatchRequest
from pytest_vllm_gates.load.traces import take

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_vllm_gates.load.trace import TraceSelection

# The first lines of each as they are published.
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224670,879,55
"""
BURSTGPT = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
6,ChatGPT,1087,0,1087,Conversation log
18,GPT-4,417,276,693,Conversation log
"""
BURSTGPT_3 = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5.5,7,1.25,ChatGPT,472,18,490,Conversation log
"""
MOONCAKE = """\
{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0,1,2,3,4,5,6,7,8,9,10,11,12,13]}
{"timestamp": 3000, "input_length": 915, "output_length": 355, "hash_ids": [0, 462]}
{"timestamp": 5999, "input_length": 1053, "output_length": 26}
"""  # noqa: E501 - as it is published
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def batch(**changes: Any) -> str:
    """Return a line of a batch file."""
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hi"}]}
    line = {"custom_id": "request-1", "method": "POST", "url": CHAT, "body": body} | changes
    return json.dumps(line) + "\n"


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "the trace"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def take_from(folder: Path, content: str | bytes, **traffic: Any) -> TraceSelection:
    return take(written(folder, content), planned_traffic({"seconds": 60, **traffic}))


def arrivals(selection: TraceSelection) -> list[tuple[float, int, int]]:
    return [
        (round(arrival.at_s, 6), arrival.prompt_tokens, arrival.output_tokens)
        for arrival in selection.entries
        if isinstance(arrival, Arrival)
    ]


def test_an_azure_trace(tmp_path: Path) -> None:
    selection = take_from(tmp_path, AZURE)
    assert selection.format == "Azure LLM inference trace"
    assert arrivals(selection) == [(0.0, 374, 44), (4.314579, 396, 109), (4.541877, 879, 55)]
    # The format of 2024 has the time zone, and omits a fraction that is zero.
    newer = AZURE[:40] + "2024-05-10 00:00:00+00:00,9,1\n2024-05-10 00:00:00.5+00:00,8,2\n"
    assert arrivals(take_from(tmp_path, newer)) == [(0.0, 9, 1), (0.5, 8, 2)]


def test_a_burstgpt_trace_without_the_requests_that_failed(tmp_path: Path) -> None:
    selection = take_from(tmp_path, BURSTGPT)
    assert (selection.format, selection.left_out) == ("BurstGPT trace", 1)
    assert arrivals(selection) == [(0.0, 472, 18), (13.0, 417, 276)]
    assert arrivals(take_from(tmp_path, BURSTGPT_3)) == [(0.0, 472, 18)]


def test_a_mooncake_trace_with_the_blocks_that_prompts_share(tmp_path: Path) -> None:
    selection = take_from(tmp_path, MOONCAKE)
    assert selection.format == "Mooncake trace"
    assert arrivals(selection) == [(0.0, 6758, 500), (3.0, 915, 355), (5.999, 1053, 26)]
    blocks = [arrival.blocks[:2] for arrival in selection.entries if isinstance(arrival, Arrival)]
    assert blocks == [(0, 1), (0, 462), ()]


def test_a_batch_file(tmp_path: Path) -> None:
    content = batch() + "\n" + batch(custom_id="b", url=COMPLETIONS, body={"prompt": "Once"})
    selection = take_from(tmp_path, content)
    assert selection.format == "OpenAI batch file"
    requests = [request for request in selection.entries if isinstance(request, BatchRequest)]
    assert [(request.name, request.path) for request in requests] == [
        ("request-1", CHAT), ("b", COMPLETIONS),
    ]  # fmt: skip


def test_byte_order_mark_and_windows_line_ends_are_accepted(tmp_path: Path) -> None:
    content = "\ufeff" + AZURE.replace("\n", "\r\n")
    assert arrivals(take_from(tmp_path, content)) == arrivals(take_from(tmp_path, AZURE))


def test_no_more_is_taken_than_planned(tmp_path: Path) -> None:
    assert len(take_from(tmp_path, AZURE, requests=2).entries) == 2
    assert len(take_from(tmp_path, AZURE, seconds=4.4).entries) == 2
    assert len(take_from(tmp_path, AZURE, seconds=4.4, trace_speed=2.0).entries) == 3
    assert len(take_from(tmp_path, batch() + "no JSON", requests=1).entries) == 1


def test_a_huge_trace_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    line = traces._line

    def counted(path: Path, number: int, data: bytes) -> Any:
        read.append(number)
        return line(path, number, data)

    monkeypatch.setattr(traces, "_line", counted)
    path = tmp_path / "huge.csv"
    with path.open("w") as file:
        file.write(AZURE)
        file.truncate(2**33)  # 8 GiB, a hole that takes no room on the disk
    assert len(take(path, planned_traffic({"requests": 3})).entries) == 3
    assert read == [1, 2, 3, 4]


def edited(content: str, line: int, new: str) -> str:
    """Return the content with one line replaced; the first is 1."""
    lines = content.splitlines()
    lines[line - 1] = new
    return "\n".join(lines) + "\n"


WRONG: list[tuple[str | bytes, str, str]] = [
    ("", "", "the trace is empty\nname one that is not: --load-trace FILE"),
    ("\n \n", "", "the trace is empty"),
    (AZURE[:40], "", "this Azure LLM inference trace has no request to replay"),
    (BURSTGPT.replace(",18,490", ",0,490").replace(",276,", ",0,"), "",
     "this BurstGPT trace has no request to replay; 3 have no prompt or no answer"),
    ("hello\n", ":1", "found 'hello'; expected the first line of a trace (Azure LLM inference"),
    ("[\n", ":1", "found '['; expected the first line of a trace"),
    ("{}\n", ":1", "found '{}'; expected the first line of a trace"),
    ("TIMESTAMP,ContextTokens\n1,2\n", ":1",
     "found no GeneratedTokens; expected the columns of the Azure LLM inference trace"),
    ('{"timestamp": 1, "output_length": 2}\n', ":1",
     "found no input_length; expected the keys of the Mooncake trace"),
    (edited(AZURE, 3, "2023-11-16 18:15:50.9951690,396"), ":3",
     "found 2 columns; expected 3: TIMESTAMP, ContextTokens, GeneratedTokens\nis the file"),
    (edited(AZURE, 3, "yesterday,396,109"), ":3",
     "found TIMESTAMP 'yesterday'; expected a time such as 2023-11-16 18:15:46.68"),
    (edited(AZURE, 3, "2023-11-16 18:15:50.9951690,-396,109"), ":3",
     "found ContextTokens '-396'; expected a whole number of tokens, 0 or more"),
    (edited(AZURE, 3, "2023-11-16 18:15:50.9951690,396,1.5"), ":3",
     "found GeneratedTokens '1.5'; expected a whole number of tokens"),
    (edited(AZURE, 3, "2023-11-16 18:15:46.1805900,396,109"), ":3",
     "found a time 0.5 s before that of the request above it; expected requests in the order of "
     "their times\nsort it: (head -n 1 "),
    (edited(BURSTGPT, 4, "4,GPT-4,417,276,693,log"), ":4", "| sort -t, -g -k1,1) > sorted.csv"),
    (edited(BURSTGPT, 4, "nan,GPT-4,417,276,693,log"), ":4",
     "found Timestamp 'nan'; expected a number of seconds"),
    (edited(BURSTGPT, 4, '18,"GPT-4,417,276,693,log'), ":4", "expected a line of comma-separated"),
    (edited(MOONCAKE, 2, '{"timestamp": -1, "input_length": 5, "output_length": 3}'), ":2",
     "sort it: jq -s -c 'sort_by(.timestamp)[]'"),
    (edited(MOONCAKE, 2, '{"timestamp": 3, "input_length": 5, "output_'), ":2",
     "expected a whole JSON object on one line\nis the file cut off?"),
    (edited(MOONCAKE, 2, '{"timestamp": 3, "input_length": 5}'), ":2",
     "found no output_length; expected the keys timestamp, input_length, output_length"),
    (edited(MOONCAKE, 2, '{"timestamp": true, "input_length": 5, "output_length": 3}'), ":2",
     "found timestamp True; expected a number of milliseconds"),
    (edited(MOONCAKE, 2, '{"timestamp": 3, "input_length": null, "output_length": 3}'), ":2",
     "found input_length None; expected a number of tokens"),
    (edited(MOONCAKE, 2, '{"timestamp": 3, "input_length": 513, "output_length": 3, "hash_ids": '
            "[1]}"), ":2", "found 1 hash_ids; expected 2, one for every 512 of 513 tokens begun"),
    (edited(MOONCAKE, 2, '{"timestamp": 3, "input_length": 5, "output_length": 3, "hash_ids": '
            '["a"]}'), ":2", "found hash_ids that are not a list of integers"),
    (edited(MOONCAKE, 2, "[1]"), ":2", "found '[1]'; expected a JSON object"),
    (MOONCAKE.splitlines()[1] + '\n{"a":' + "[" * 100_000 + "\n", ":2",
     "expected a JSON object that can be read"),
    (batch(method="GET"), ":1", "found method 'GET'; expected 'POST'"),
    (batch(url="/v1/embeddings"), ":1",
     "found url '/v1/embeddings'; expected /v1/chat/completions or /v1/completions"),
    (batch(url=["/v1/completions"]), ":1", "found url ['/v1/completions']"),
    (batch(body="{}"), ":1", "found a body that is str; expected the request as a JSON object"),
    (batch(custom_id=3), ":1", "found custom_id 3; expected a text"),
    (batch(body={"messages": [], "n": 2}), ":1", "found a request for several answers"),
    (batch(url=COMPLETIONS, body={"prompt": ["a", "b"]}), ":1", "a request for several answers"),
    (batch() + batch(), ":2",
     "found the custom_id 'request-1' of line 1; expected a different custom_id"),
    (AZURE.encode() + b"\xff\xfe\n", ":5",
     "found the byte 0xff at 0; expected UTF-8\ndecompress it"),
    (b"\x1f\x8b\x08\x00", ":1", "found the byte 0x8b at 1; expected UTF-8\ndecompress it first if"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "place", "expected"), WRONG)
def test_invalid_trace_is_refused_with_its_line(
    tmp_path: Path, content: str | bytes, place: str, expected: str
) -> None:
    with pytest.raises(UserError) as error:
        take_from(tmp_path, content)
    message = str(error.value)
    assert message.startswith(f"{tmp_path / 'the trace'}{place}: ")
    assert expected in message
    assert "\n" in message, "no next step"


def test_a_line_without_end_is_refused_and_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "LONGEST_BYTES", 2**20)
    with pytest.raises(UserError, match=r":1: found more than 1 MiB on a line; .*\nis it a trace"):
        take_from(tmp_path, b"x" * (2**20 + 1))


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--load-trace .*nothing: does not exist\nname a trace"):
        take(tmp_path / "nothing", planned_traffic())
    with pytest.raises(UserError, match="is not a file"):
        take(tmp_path, planned_traffic())


def test_too_short_plan_is_refused_with_a_replay_speed(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"comes 4\.31\d* s after the first.*\nreplay it faster"
    ) as e:
        take_from(tmp_path, AZURE, seconds=1.0)
    assert "trace_speed = 4.4 or more under [load]" in str(e.value)
    assert len(take_from(tmp_path, AZURE, seconds=1.0, trace_speed=4.4).entries) == 2


LENGTHS = st.integers(1, 10**6)
# Steps of a tenth of a millisecond: every format can carry them.
ORDERED = st.lists(st.tuples(st.integers(0, 10**6), LENGTHS, LENGTHS), min_size=1, max_size=20).map(
    lambda rows: sorted((at / 10_000, prompt, output) for at, prompt, output in rows)
)
Rows = list[tuple[float, int, int]]


def as_azure(rows: Sequence[tuple[float, int, int]]) -> str:
    begun = datetime(2024, 5, 10, tzinfo=UTC)
    lines = [f"{begun + timedelta(seconds=at)},{prompt},{output}" for at, prompt, output in rows]
    return "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines])


def as_burstgpt(rows: Sequence[tuple[float, int, int]]) -> str:
    lines = [f"{at!r},GPT-4,{prompt},{output},{prompt + output},log" for at, prompt, output in rows]
    return "\n".join([BURSTGPT.splitlines()[0], *lines])


def as_mooncake(rows: Sequence[tuple[float, int, int]]) -> str:
    return "\n".join(
        json.dumps({"timestamp": 1000 * at, "input_length": prompt, "output_length": output})
        for at, prompt, output in rows
    )


@pytest.mark.parametrize("write", [as_azure, as_burstgpt, as_mooncake])
@given(rows=ORDERED)
def test_any_ordered_trace_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, write: Callable[[Rows], str], rows: Rows
) -> None:
    folder = tmp_path_factory.getbasetemp()
    selection = take_from(folder, write(rows), seconds=1000)
    assert [arrival[1:] for arrival in arrivals(selection)] == [row[1:] for row in rows]
    times = [at - rows[0][0] for at, _, _ in rows]
    assert [arrival[0] for arrival in arrivals(selection)] == pytest.approx(times, abs=1e-5)


@given(content=st.text() | st.binary())
def test_random_content_is_refused(
    tmp_path_factory: pytest.TempPathFactory, content: str | bytes
) -> None:
    data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    with pytest.raises(UserError, match="\n"):  # and nothing else is ever raised
        take_from(tmp_path_factory.getbasetemp(), data)


@given(at_s=st.floats(allow_nan=True, allow_infinity=True), length=st.integers() | st.floats())
def test_any_numbers_are_accepted_or_refused(
    tmp_path_factory: pytest.TempPathFactory, at_s: float, length: float
) -> None:
    line = json.dumps({"timestamp": at_s, "input_length": length, "output_length": 1})
    try:
        selection = take_from(tmp_path_factory.getbasetemp(), line)
    except UserError:
        assert not (math.isfinite(at_s) and length >= 1 and float(length).is_integer())
    else:
        assert [arrival[1] for arrival in arrivals(selection)] == [length]
