"""The forced texts, and the facts that decide which kernels run: two ranks are not a regression."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.client import http
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.numerics import checks_paired, forced
from pytest_vllm_gates.numerics.checks_paired import Equivalence
from pytest_vllm_gates.numerics.forced_types import ForcedRun
from pytest_vllm_gates.numerics.types import Scores

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PLAIN = forced.build("0.32.0", {"torch": "2.13.0+cpu"}, {"max_num_seqs": 8}, {"HF_HOME": "/x"})


def test_build_is_the_versions_where_nothing_chooses_kernels() -> None:
    assert PLAIN == "0.32.0, torch 2.13.0+cpu"
    assert forced.build("0.32.0", {}, {}, {}) == "0.32.0"


@pytest.mark.parametrize(
    ("versions", "serve", "env"),
    [
        ({"torch": "2.14.0"}, {}, {}),
        ({"torch": "2.13.0+cpu"}, {"tensor_parallel_size": 2}, {}),
        ({"torch": "2.13.0+cpu"}, {"attention_backend": "FLASHINFER"}, {}),
        ({"torch": "2.13.0+cpu"}, {}, {"OMP_NUM_THREADS": "1"}),
        ({"torch": "2.13.0+cpu"}, {}, {"ONEDNN_MAX_CPU_ISA": "AVX2"}),
        ({"torch": "2.13.0+cpu"}, {}, {"ATEN_CPU_CAPABILITY": "avx2"}),
    ],
)
def test_other_kernels_are_another_build(
    versions: dict[str, str], serve: dict[str, object], env: dict[str, str]
) -> None:
    assert forced.build("0.32.0", versions, serve, env) != PLAIN


def test_only_flags_of_precision_and_positions_are_declared() -> None:
    serve = {"kv_cache_dtype": "fp8", "tensor_parallel_size": 2, "max_model_len": 4096}
    assert forced.declared(serve) == {"kv_cache_dtype": "fp8"}


def own(folder: Path, *texts: str) -> Path:
    (folder / forced.NAME).write_text("".join(f"[[texts]]\n{text}\n" for text in texts))
    return folder


def test_a_projects_texts_come_after_those_that_ship(tmp_path: Path) -> None:
    shipped = forced.load_all(tmp_path)
    assert len(shipped) >= 16
    texts = forced.load_all(own(tmp_path, 'name = "mine"\ntext = "Hello"\nrepeat = 9\ntokens = 32'))
    assert texts[:-1] == shipped
    assert (texts[-1].name, texts[-1].repeat, texts[-1].tokens) == ("mine", 9, 32)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (('name = "english"\ntext = "Hello"',), "'english' already"),
        (('name = "long"\ntext = "Hello"',), "'long' already"),
        (('name = "a"\ntext = "x"', 'name = "a"\ntext = "y"'), "'a' already"),
        (('name = "a"\ntext = ""',), "forced_texts.toml"),
        (('name = "a"\ntext = "x"\ntokens = 3',), "tokens"),
        (('name = "a"\ntext = "x"\nrepeat = 1000000',), "repeat"),
        (('name = "a"\ntxt = "x"',), "text"),
    ],
)
def test_a_fault_in_a_projects_texts_is_reported(
    tmp_path: Path, texts: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        forced.load_all(own(tmp_path, *texts))


class Asked:
    """Replaces a server: each text has different tokens, and is off by so many nats."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests, self.off = 0, 0.0
        monkeypatch.setattr(forced, "served_scores", self.scores)
        monkeypatch.setattr(http, "token_ids", lambda _, text: [ord(text)] * 40)

    def scores(self, _: object, ids: Sequence[int], count: int, *, score_prompt: bool) -> Scores:
        self.requests += 1
        prompt = [-1.0 - number / 50 + self.off for number in ids[1:]] if score_prompt else []
        return Scores(tuple(ids), tuple(prompt), (1,) * count, (-0.5,) * count)

    def rounds(self, texts: int) -> forced.ForcedRounds:
        named = [forced.Text(name=f"t{number}", text=chr(97 + number)) for number in range(texts)]
        nothing = ForcedRun("w", "0.32.0", "EPYC", ())
        return forced.ForcedRounds(None, named, 4096, nothing)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("texts", "sizes"), [(4, [5]), (7, [8]), (15, [8, 16]), (16, [9, 17]), (23, [8, 16, 24])]
)
def test_each_round_fills_a_batch_and_the_long_text_is_first(
    monkeypatch: pytest.MonkeyPatch, texts: int, sizes: list[int]
) -> None:
    rounds = Asked(monkeypatch).rounds(texts)
    runs = [*rounds]
    assert [len(run.texts) for run in runs] == sizes
    assert len(sizes) == rounds.looks
    assert [text.name for text in runs[-1].texts] == ["long", *(f"t{n}" for n in range(texts))]
    assert len(runs[-1].texts[0].ids) == min(forced.LONG_TOKENS, 40 * texts)


def test_an_equal_server_gets_all_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    trusted = asked.rounds(23).whole()
    asked.requests = 0
    now, comparisons = checks_paired.until_different(trusted, asked.rounds(23))
    assert now == trusted
    assert asked.requests == 3 * 24
    assert {each.answer for each in comparisons} == {Equivalence.EQUIVALENT}


@pytest.mark.parametrize(("enough", "texts"), [(0, 8), (10_000, 24)])
def test_a_different_server_gets_only_enough_texts_to_name_the_difference(
    monkeypatch: pytest.MonkeyPatch, enough: int, texts: int
) -> None:
    monkeypatch.setattr(checks_paired, "NAMED_TOKENS", enough)
    asked = Asked(monkeypatch)
    trusted = asked.rounds(23).whole()
    asked.requests, asked.off = 0, 0.01
    now, comparisons = checks_paired.until_different(trusted, asked.rounds(23))
    assert len(now.texts) == texts
    assert asked.requests == 3 * texts
    assert Equivalence.DIFFERENT in {each.answer for each in comparisons}
