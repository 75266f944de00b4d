"""Failed and stalled requests of a load are recorded as they arrived."""

from __future__ import annotations

from hypothesis import given, strategies as st

from pytest_vllm_gates.load.generator.samples import KEPT, sent, worth_keeping
from pytest_vllm_gates.load.types import PlannedRequest, RawResponse

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
REQUEST = PlannedRequest("a", "/prefix/v1/completions", b'{"n": 1}')


def raw(name: str, *times: float, answer: bytes = HEAD, error: str = "") -> RawResponse:
    arrivals = tuple((at, number) for number, at in enumerate(times, 1))
    return RawResponse(name, 0.0, 0.0, 9.0, answer, arrivals, 0.0, error)


def test_failed_and_longest_stalled_requests_are_kept() -> None:
    good = [raw(f"good-{n}", 0.0, 0.1, 0.1 + n / 10) for n in range(20)]
    failed = [raw(f"failed-{n}", error="reset") for n in range(20)]
    refused = raw("refused", answer=b"HTTP/1.1 500 Internal Server Error\r\n\r\n")
    names = [response.name for response in worth_keeping([*good, refused, *failed])]
    assert names[:KEPT] == ["refused", *(f"failed-{n}" for n in range(KEPT - 1))]
    assert names[KEPT:] == [f"good-{n}" for n in range(19, 19 - KEPT, -1)]


def test_request_is_recorded_like_any_exchange() -> None:
    chunks = [b"data: one\n\n", b"data: two\n\n"]
    parts = [HEAD, *(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks), b"0\r\n\r\n"]
    ends = [sum(map(len, parts[: n + 1])) for n in range(len(parts))]
    arrivals = tuple(zip((1.5, 2.0, 3.0, 3.0), ends, strict=True))
    response = RawResponse("s-1", 1.0, 1.25, 3.0, b"".join(parts), arrivals)
    record = sent(response, REQUEST, {"Authorization": "Bearer x"}, "/prefix")
    assert (record.method, record.path, record.body) == ("POST", "/v1/completions", b'{"n": 1}')
    assert (record.name, record.status, record.error) == ("load s-1", 200, "")
    assert record.pieces == ((0.75, chunks[0]), (1.75, chunks[1]))
    assert record.headers == {"Authorization": "[redacted]"}
    assert record.response_headers["Content-Type"] == "text/event-stream"


def test_a_request_that_was_not_answered_has_no_status() -> None:
    record = sent(raw("a", answer=b"", error="refused"), REQUEST, {}, "")
    assert (record.status, record.pieces, record.error) == (None, (), "refused")


def test_a_body_without_chunks_is_kept() -> None:
    answer = b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"
    response = RawResponse("a", 0.0, 0.0, 1.0, answer, ((0.5, len(answer)),))
    record = sent(response, REQUEST, {}, "")
    assert (record.status, record.pieces) == (503, ((0.5, b"busy"),))


@given(
    st.lists(st.binary(min_size=1), max_size=6),
    st.lists(st.integers(0, 400)),
    st.integers(0, 400),
)
def test_body_is_restored_however_it_is_cut(
    chunks: list[bytes], cuts: list[int], lost: int
) -> None:
    complete = (
        HEAD + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    )
    answer = complete[: max(len(HEAD), len(complete) - lost)] if lost % 2 else complete
    ends = sorted({*(cut for cut in cuts if 0 < cut < len(answer)), len(answer)})
    response = RawResponse(
        "a", 0.0, 0.0, 9.0, answer, tuple((n / 10, end) for n, end in enumerate(ends))
    )
    record = sent(response, REQUEST, {}, "")
    assert b"".join(chunks).startswith(record.answer)
    assert len(answer) < len(complete) or record.answer == b"".join(chunks)
    times = [at for at, _ in record.pieces]
    assert times == sorted(times)


@given(st.binary())
def test_any_bytes_can_be_recorded(answer: bytes) -> None:
    response = RawResponse("a", 0.0, None, 1.0, HEAD + answer, ((0.5, len(answer)),))
    assert sent(response, REQUEST, {}, "").status == 200
