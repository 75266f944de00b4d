"""Wrong requests are data: the allowed content of a file, and the requests made from it."""

from __future__ import annotations

import json
import math
import tracemalloc
from pathlib import Path

import pytest

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.robustness import types as robustness_types
from pytest_vllm_gates.robustness.types import WrongRequest, load_all

NOWHERE = Path("/nowhere")


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[WrongRequest]:
    """An empty folder in place of the shipped cases; `tmp_path` is the project."""
    monkeypatch.setattr(robustness_types, "SHIPPED", tmp_path / "shipped")
    (tmp_path / "robustness").mkdir()
    return WrongRequest


def cases(tmp_path: Path, text: str) -> tuple[WrongRequest, ...]:
    (tmp_path / "robustness" / "own.toml").write_text(text)
    return load_all(tmp_path)


def test_the_shipped_cases_can_be_sent() -> None:
    requests = load_all(NOWHERE)
    assert len(requests) > 150
    for case in requests:
        data = case.data("m", 100)
        if case.raw is None:
            assert "repeat" not in str(json.loads(data))[:10_000]


def test_a_project_adds_cases_and_replaces_files(tmp_path: Path) -> None:
    (tmp_path / "robustness").mkdir()
    (tmp_path / "robustness" / "sampling.toml").write_text('[[cases]]\nname = "ours alone"\n')
    names = {case.name for case in load_all(tmp_path)}
    assert "ours alone" in names
    assert "temperature below zero" not in names
    assert "unknown model" in names


@pytest.mark.usefixtures("read")
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[[cases]]\nname = "a"\nboddy = {}\n', "unknown key 'cases.0.boddy'; did you mean 'body'"),
        ("[[cases]]\nbody = {}\n", "'cases.0.name' is missing"),
        ('[[cases]]\nname = "a"\nexpect = "accepted"\n', "'refused', 'either' or 'answered'"),
        ('[[cases]]\nname = "a"\nraw = ["x"]\nbody.n = 1\n', "a case has raw, or it has body"),
        ('[[cases]]\nname = "a"\nraw = [{ repeat = "x" }]\n', "own.toml"),
        ('[[cases]]\nname = "a"\n[[cases]]\nname = "a"\n', "the case 'a' is also in"),
        ("", "'cases' is missing"),
    ],
)  # fmt: skip
def test_a_fault_in_a_file_is_a_user_error(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        cases(tmp_path, text)
    assert sentence in str(error.value)


@pytest.mark.usefixtures("read")
def test_a_body_is_laid_over_a_plain_request(tmp_path: Path) -> None:
    (case,) = cases(
        tmp_path,
        '[[cases]]\nname = "a"\nwithout = ["messages"]\n'
        "body = { temperature = nan, top_p = inf }\n",
    )
    body = json.loads(case.data("m", 100, {"more": 1}))
    assert set(body) == {"model", "max_tokens", "temperature", "top_p", "more"}
    assert math.isnan(body["temperature"])
    assert math.isinf(body["top_p"])


@pytest.mark.usefixtures("read")
def test_repeat_and_times_make_long_values(tmp_path: Path) -> None:
    (case,) = cases(
        tmp_path,
        '[[cases]]\nname = "a"\nbody.stop = { repeat = ["x"], times = 3 }\n'
        'body.messages = [{ role = "user", content = { repeat = "ab", times = "context" } }]\n',
    )
    body = json.loads(case.data("m", 4))
    assert body["stop"] == ["x", "x", "x"]
    assert body["messages"] == [{"role": "user", "content": "abababab"}]


@pytest.mark.usefixtures("read")
def test_repeated_texts_keep_their_places(tmp_path: Path) -> None:
    (case,) = cases(
        tmp_path,
        '[[cases]]\nname = "a"\nbody.user = { repeat = \'é"\', times = 2 }\n'
        'body.stop = ["x", { repeat = "y", times = 2 }, { repeat = "", times = 2 }]\n'
        'body.messages = { repeat = "z", times = 0 }\n',
    )
    body = json.loads(case.data("m", 4))
    assert (body["user"], body["stop"], body["messages"]) == ('é"é"', ["x", "yy", ""], "")


@pytest.mark.usefixtures("read")
def test_a_text_of_megabytes_is_made_once(tmp_path: Path) -> None:
    text = '[[cases]]\nname = "a"\nbody.user = { repeat = "word ", times = 1000007 }\n'
    (case,) = cases(tmp_path, text)
    tracemalloc.start()
    try:
        data = case.data("m", 4)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1.1 * len(data)
    assert json.loads(data)["user"] == "word " * 1_000_007


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("body.user = 1", "m"), ("body.model = 5", "5"), ('body.model = "n"', "n"),
        ('without = ["model"]', ""), ("body.model = 0", ""), ('raw = ["{}"]', ""),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("read")
def test_the_named_model_is_that_of_the_request(tmp_path: Path, body: str, named: str) -> None:
    (case,) = cases(tmp_path, f'[[cases]]\nname = "a"\n{body}\n')
    assert case.named("m") == named


@pytest.mark.usefixtures("read")
def test_raw_texts_are_sent_unchanged(tmp_path: Path) -> None:
    (case,) = cases(
        tmp_path,
        '[[cases]]\nname = "a"\nencoding = "latin-1"\n'
        """raw = ['{"model": "${model}", "é": ', { repeat = "[", times = 2 }]\n""",
    )
    assert not case.named("m")
    assert case.data("m", 4) == b'{"model": "m", "\xe9": [['


@pytest.mark.usefixtures("read")
@pytest.mark.parametrize(
    ("times", "context", "tokens"),
    [('"context"', 100, 100), ('"steps"', 4096, 3072), ('"steps"', 262_144, 20_000), ("3", 9, 3)],
)
def test_a_repetition_may_depend_on_the_context(
    tmp_path: Path, times: str, context: int, tokens: int
) -> None:
    text = f'[[cases]]\nname = "a"\nbody.prompt = {{ repeat = [5], times = {times} }}\n'
    (case,) = cases(tmp_path, text)
    body = json.loads(case.data("m", context))
    assert body["prompt"] == [5] * tokens
