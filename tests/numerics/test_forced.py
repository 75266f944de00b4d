"""Which texts are forced, and what decides which kernels run: two ranks are no regression."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.numerics import forced

if TYPE_CHECKING:
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
def test_a_fault_in_a_projects_texts_is_told(
    tmp_path: Path, texts: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        forced.load_all(own(tmp_path, *texts))
