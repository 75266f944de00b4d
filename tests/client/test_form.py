"""Fields of a server's answer are read in the API's form; other forms are malformed."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
import pytest

from pytest_vllm_gates.client import form
from pytest_vllm_gates.client.form import Malformed, reading


def test_text_is_text_or_null() -> None:
    assert form.text("a", "x") == "a"
    assert form.text(None, "x") == ""
    with pytest.raises(Malformed, match=r"^delta.content is 7 \(int\), and the API has text there"):
        form.text(7, "delta.content")


@pytest.mark.parametrize("value", [-1, 10**30, 1.0, float("nan"), True, "7", None, [], {}])
def test_count_is_a_whole_number_of_tokens(value: Any) -> None:
    assert form.count(7, "x") == 7
    with pytest.raises(Malformed, match=r"^x is .*, and the API has a count of 0 to"):
        form.count(value, "x")


@pytest.mark.parametrize("value", [None, 7, "ab", {"a": 1}, ["a"], [1, None], [-1], [1.5]])
def test_token_ids_are_a_list_of_counts(value: Any) -> None:
    assert form.token_ids([1, 2], "x") == [1, 2]
    with pytest.raises(Malformed):
        form.token_ids(value, "x")


def test_long_and_endless_values_are_cut_in_the_message() -> None:
    endless: list[Any] = []
    endless.append(endless)
    values: tuple[Any, ...] = ("a" * 10_000, 10**5000, endless, [[]] * 10_000)
    for value in values:
        with pytest.raises(Malformed) as caught:
            form.count(value, "x")
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "read",
    [
        lambda: {"usage": 1}["choices"],
        lambda: [1][len([2])],
        lambda: None.id,  # type: ignore[attr-defined]
        lambda: int("x"),
        lambda: round(float("inf")),
        lambda: 7 + "a",  # type: ignore[operator]
    ],
)
def test_whatever_goes_wrong_while_reading_is_malformed(read: Any) -> None:
    with (
        pytest.raises(Malformed, match=r"^the answer of /x is not as in the API: ."),
        reading("the answer of /x"),
    ):
        read()


def test_refused_request_keeps_its_error() -> None:
    request = httpx.Request("GET", "http://127.0.0.1/")
    response = httpx.Response(500, request=request)
    with pytest.raises(httpx.HTTPStatusError), reading("the answer"):
        response.raise_for_status()


def test_malformed_answer_is_an_http_error_and_a_value_error() -> None:
    assert issubclass(Malformed, httpx.HTTPError)
    assert issubclass(Malformed, ValueError)
