"""A lane that names a release of vLLM has everything else from the table and its device's lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog import lane as lanes, of_release
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


def load(project: Path, text: str) -> lanes.Lane:
    (project / "lanes").mkdir(exist_ok=True)
    (project / "lanes" / "mine.toml").write_text(text)
    return lanes.load("mine", project)


def test_lane_may_name_a_release_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_release, "DEVICE_FILES", ())
    lane = load(tmp_path, 'vllm = "0.29.0"\n')
    shipped = lanes.load("cpu", tmp_path)
    assert lane.form == "lock"
    assert lane.title == "vLLM 0.29.0 on the CPU"
    assert lane.lock_path == tmp_path / "lanes" / "mine-cpu.txt"
    assert lane.overlay_path == shipped.overlay_path
    assert (lane.env, lane.torch_backend) == (shipped.env, "cpu")
    assert lane.serve == {"enforce_eager": True}
    assert not lane.batch_invariant
    at_hand = environment.at_hand(lane, cache=tmp_path)
    assert (at_hand.vllm, at_hand.python) == ("0.29.0", None)


def test_device_is_what_the_machine_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_release, "DEVICE_FILES", (tmp_path,))
    lane = load(tmp_path, 'vllm = "0.32.0"\n')
    assert (lane.device, lane.overlay, lane.title) == (
        "cuda",
        None,
        "vLLM 0.32.0 on an NVIDIA GPU",
    )


def test_keys_of_the_lane_override_defaults(tmp_path: Path) -> None:
    lane = load(
        tmp_path,
        'vllm = "0.27.1"\ndevice = "cpu"\ntitle = "old"\nlock = "own.txt"\n'
        '[serve]\nmax-model-len = 2048\nmamba-ssm-cache-dtype = "auto"\n[env]\nMINE = "1"\n',
    )
    assert (lane.title, lane.lock) == ("old", "own.txt")
    assert lane.serve == {
        "enforce_eager": True, "mamba_ssm_cache_dtype": "auto", "max_model_len": 2048,
    }  # fmt: skip
    assert lane.env["MINE"] == "1"
    assert lane.env["VLLM_CPU_KVCACHE_SPACE"] == "1"


def test_release_gets_the_flags_it_needs(tmp_path: Path) -> None:
    serve = {
        version: load(tmp_path, f'vllm = "{version}"\ndevice = "cpu"\n').serve
        for version in ("0.28.0", "0.29.0", "0.32.0")
    }
    assert serve["0.28.0"]["mamba_ssm_cache_dtype"] == "float32"
    assert "mamba_ssm_cache_dtype" not in serve["0.29.0"]
    assert serve["0.32.0"] == lanes.load("cpu", tmp_path).serve


@pytest.mark.parametrize(
    ("text", "message"),
    [("vllm = 0.29\n", 'expected a release in quotes, as "0.32.0"'),
     ('vllm = "new"\n', "expected a release such as 0.32.0"),
     ('vllm = "0.32.0"\ndevice = "tpu"\n', "unknown device 'tpu'"),
     ('vllm = "0.32.0"\npython = "p"\n', "this one has python and lock"),
     ('title = "t"\ndevice = "cpu"\npython = "p"\n', "device has no effect in a lane")],
)  # fmt: skip
def test_faulty_lane_of_a_release_is_reported(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load(tmp_path, text)
    assert message in str(caught.value)


def test_lane_is_named_by_its_file_too(tmp_path: Path) -> None:
    load(tmp_path, 'vllm = "0.32.0"\ndevice = "cpu"\n')
    lane = lanes.load(str(tmp_path / "lanes" / "mine.toml"), tmp_path / "elsewhere")
    assert lane.name == "mine"
    with pytest.raises(UserError, match=r"none.toml: lane file not found"):
        lanes.load(str(tmp_path / "none.toml"), tmp_path)
