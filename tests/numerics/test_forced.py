"""What decides which kernels run is part of a build, so that two ranks are no regression of one."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.numerics import forced

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
