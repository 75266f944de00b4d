"""`vllm-gates explain` on folders, several containers, and with what is known of where it ran."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sys
from pathlib import Path

import pytest
import zstandard

from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.server import log_bytes

CAUSE = "(EngineCore pid=1) ValueError: No available memory for the cache blocks."
BANNER = "(APIServer pid=1) INFO 11-20 10:00:00 [api_server.py:1] vLLM API server version 0.32.0"
SPARK = {
    "machine": {
        "os": "Linux", "python": "3.12", "cpu": "Grace", "cores": 20, "memory_bytes": 130 * 2**30,
        "gpus": ["NVIDIA GB10"], "environment": {"NCCL_P2P_DISABLE": "1"},
        "devices": [{"index": 0, "name": "NVIDIA GB10", "capability": "12.1", "unified": True}],
        "driver": {"version": "580.95"}, "limits": {"open_files": [1024, 4096]},
    }
}  # fmt: skip


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(["explain", *arguments])
    printed = capsys.readouterr()
    return status, printed.out + printed.err


CONTENTS = {
    "a.gz": gzip.compress(CAUSE.encode()),
    "a.bz2": bz2.compress(CAUSE.encode()),
    "a.xz": lzma.compress(CAUSE.encode()),
    "a.zst": zstandard.compress(CAUSE.encode()),
    "utf16.log": f"{CAUSE}\r\n".encode("utf-16"),
    "utf16le.log": f"{CAUSE}\r\n".encode("utf-16-le"),
    "utf16be.log": f"{CAUSE}\r\n".encode("utf-16-be"),
    "bom.log": b"\xef\xbb\xbf" + CAUSE.encode(),
    "truncated.log": b"\0" * 5000 + CAUSE.encode(),
    "gzip-of-utf16.gz": gzip.compress(CAUSE.encode("utf-16")),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_log_is_read_as_it_is_kept(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = CONTENTS[name]
    Path(name).write_bytes(content)
    status, text = explained(capsys, name)
    assert (status, text.split(" ")[0]) == (0, "KV_NONE"), text
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    status, text = explained(capsys, "-")
    assert (status, text.split(" ")[0]) == (0, "KV_NONE"), text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x7fELF\2\1\1" + bytes(300), "a program or a core dump"),
        (zstandard.compress(f"{CAUSE} {[*range(9999)]}".encode())[:-99], "zstd file is cut off"),
        (b"\x28\xb5\x2f\xfd" + bytes(range(256)), "zstd file is cut off or damaged"),
        (b"PK\x03\x04" + bytes(99), "zip archive"),
        (bytes(range(32)) * 9, "binary data, not a log"),
        (gzip.compress(b"line\n" * 999)[:-12], "cut off"),
        (bytes(257) + b"ustar" + bytes(250), "tar archive"),
    ],
    ids=["ELF", "cut zstd", "damaged zstd", "zip", "binary", "cut gzip", "tar"],
)
def test_file_that_is_not_a_log_is_named_by_its_kind(
    content: bytes, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("server.log").write_bytes(content)
    status, text = explained(capsys, "server.log")
    assert (status, says in text, "nothing wrong" in text) == (2, True, False), text


def test_an_empty_log_and_one_that_ends_while_loading_exit_with_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("empty.log").write_bytes(b"")
    assert explained(capsys, "empty.log") == (
        1, "the log is empty: nothing was read, so nothing is diagnosed\n",
    )  # fmt: skip
    Path("loading.log").write_text(f"{BANNER}\n")
    status, text = explained(capsys, "loading.log")
    assert (status, "ends while the server starts" in text) == (1, True)


def test_each_container_is_explained_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        "[pod/vllm-0/proxy] upstream connect error or disconnect/reset before headers",
        f"[pod/vllm-0/vllm] {BANNER}",
        "[pod/vllm-0/proxy] 200 OK",
        f"[pod/vllm-0/vllm] {CAUSE}",
    ]
    Path("pods.log").write_text("\n".join(lines))
    status, text = explained(capsys, "pods.log")
    assert status == 0
    assert text.startswith("== vllm-0/vllm\nKV_NONE (certain)"), text
    assert "  seen:  line 4, by EngineCore" in text
    assert "== vllm-0/proxy\nthe log reports no error" in text
    Path("compose.log").write_text(f"vllm-1  | {CAUSE}\nnginx-1 | ready\n")
    assert "== vllm-1\nKV_NONE" in explained(capsys, "compose.log")[1]
    Path("table.log").write_text(f"gpu | memory\nhost | memory\n{CAUSE}\nend\nend\n")
    assert explained(capsys, "table.log")[1].startswith("KV_NONE")
    Path("tail.log").write_text(f"==> a.log <==\nfine\n==> b.log <==\n{CAUSE}\n")
    assert "== b.log\nKV_NONE" in explained(capsys, "tail.log")[1]


def test_a_folder_is_explained_file_by_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("logs/inner").mkdir(parents=True)
    Path("logs/a.log").write_text(f"{BANNER}\nApplication startup complete.\n")
    Path("logs/inner/b.log").write_text(CAUSE)
    status, text = explained(capsys, "logs")
    assert status == 0
    assert text.startswith("== inner/b.log\nKV_NONE"), text
    assert "== a.log\nthe log reports no error\n  the server serves" in text
    Path("logs/core").write_bytes(b"\x7fELF" + bytes(99))
    status, text = explained(capsys, "logs")
    assert (status, "not read: logs/core: a program or a core dump" in text) == (2, True)
    document = json.loads(explained(capsys, "logs", "--json")[1])
    assert document["parts"]["inner/b.log"]["id"] == "KV_NONE"
    Path("none").mkdir()
    assert explained(capsys, "none")[0] == 2


def test_an_inventory_brings_the_fixes_of_its_machine(capsys: pytest.CaptureFixture[str]) -> None:
    Path("node.json").write_text(json.dumps(SPARK))
    Path("server.log").write_text("RuntimeError: Error Internal\n")
    assert "CutlassFP8ScaledMMLinearKernel" not in explained(capsys, "server.log")[1]
    status, text = explained(capsys, "server.log", "--context", "node.json")
    assert status == 0
    assert "  next:  on sm_120 and sm_121 the wheel's CUTLASS FP8 kernels" in text
    Path("node.json").write_text('{"machine": {}}')
    status, text = explained(capsys, "server.log", "--context", "node.json")
    assert (status, "is not an inventory" in text) == (2, True)


def test_options_of_the_config_are_not_advised(capsys: pytest.CaptureFixture[str]) -> None:
    line = "torch._dynamo.exc.InternalTorchDynamoError: KeyError: 3"
    Path("server.log").write_text(f"{line}\n")
    assert "`--enforce-eager`" in explained(capsys, "server.log")[1]
    Path("serve.yaml").write_text("model: x\nenforce-eager: true # for now\n")
    assert "`--enforce-eager`" not in explained(capsys, "server.log", "--context", "serve.yaml")[1]
    banner = f"{BANNER}\nINFO 11-20 10:00:00 [a.py:1] non-default args: {{'enforce_eager': True}}"
    Path("server.log").write_text(f"{banner}\n{line}\n")
    assert "`--enforce-eager`" not in explained(capsys, "server.log")[1]


def test_unknown_context_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("server.log").write_text(CAUSE)
    status, text = explained(capsys, "server.log", "--context", "nowhere")
    assert (status, "neither a lane" in text) == (2, True)
    assert explained(capsys, "server.log", "--context", "cpu")[0] == 0


@pytest.mark.parametrize("name", ["a.gz", "a.bz2", "a.xz"])
@pytest.mark.parametrize("limit", ["UNPACKED_BYTES", "UNPACKING_S"])
def test_a_packed_log_is_bounded_in_bytes_and_time(
    name: str, limit: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"a line that says nothing\n" * 200_000
    packed = {
        "a.gz": gzip.compress(content), "a.bz2": bz2.compress(content),
        "a.xz": lzma.compress(content),
    }  # fmt: skip
    Path(name).write_bytes(packed[name])
    assert explained(capsys, name)[0] == 0
    monkeypatch.setattr(log_bytes, limit, 2**20 if limit == "UNPACKED_BYTES" else 0.0)
    status, text = explained(capsys, name)
    beyond = "unpacks to more than 1 MiB" if limit == "UNPACKED_BYTES" else "takes more than 0 s"
    assert (status, beyond in text, "was not read to its end" in text) == (2, True, True), text
    assert f"-dc {name} | tail -c 200M | vllm-gates explain -" in text


LLAMA = {"model_type": "llama", "num_attention_heads": 28, "max_position_embeddings": 8192}
HEADS = (
    "ValueError: Total number of attention heads (28) must be divisible by tensor parallel "
    "size (8)."
)


def test_a_models_heads_decide_the_parallel_size(capsys: pytest.CaptureFixture[str]) -> None:
    Path("server.log").write_text(f"{HEADS}\n")
    assert "mostly 1, 2, 4 or 8" in explained(capsys, "server.log")[1]
    Path("config.json").write_text(json.dumps(LLAMA))
    text = explained(capsys, "server.log", "--context", "config.json")[1]
    assert "`--tensor-parallel-size` that divides 28: 1, 2, 4, 7, 14, 28" in text


@pytest.mark.parametrize("heads", [-5, 0, True, "28", 10**18, [28], None])
def test_invalid_head_counts_do_not_change_the_fix(
    heads: object, capsys: pytest.CaptureFixture[str]
) -> None:
    out = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    Path("server.log").write_text(f"{out}\n")
    Path("config.json").write_text(json.dumps({**LLAMA, "num_attention_heads": heads}))
    status, text = explained(capsys, "server.log", "--context", "config.json")
    assert (status, "`--tensor-parallel-size 2`" in text) == (0, True), text


def test_a_models_context_and_quantisation_decide_fixes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = (
        "(EngineCore pid=1) ValueError: To serve at least one request with the model's max seq len "
        "(40960), 5.62 GiB KV cache is needed, which is larger than the available KV cache memory "
        "(3.20 GiB). Based on the available memory, the estimated maximum model length is 23296."
    )
    Path("server.log").write_text(f"{small}\n{CAUSE}\n")
    text = explained(capsys, "server.log")[1]
    assert "23296" in text and "`--kv-cache-dtype fp8`" in text
    quantised = {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}
    Path("config.json").write_text(json.dumps({**LLAMA, "quantization_config": quantised}))
    text = explained(capsys, "server.log", "--context", "config.json")[1]
    assert "`--kv-cache-dtype fp8`" not in text
    Path("server.log").write_text(f"{CAUSE}\n")
    assert "a quantised checkpoint" in explained(capsys, "server.log")[1]
    text = explained(capsys, "server.log", "--context", "config.json")[1]
    assert "a quantised checkpoint" not in text


def test_a_model_that_may_not_be_served_in_half_is_not_advised_to(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0."
    Path("server.log").write_text(f"{line}\n")
    assert "`--dtype half`" in explained(capsys, "server.log")[1]
    Path("config.json").write_text(json.dumps({**LLAMA, "model_type": "gemma2"}))
    text = explained(capsys, "server.log", "--context", "config.json")[1]
    assert "`--dtype half`" not in text and "`--dtype float32`: vLLM does not serve gemma2" in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: &x 1\nb: *x\n", "line 2: aliases are not read"),
        ("a: [1, 2\n", "is neither JSON nor YAML: line 2: "),
        ("- a\n- b\n", "expected `name: value` lines"),
        ("just words\n", "expected `name: value` lines"),
        ("a: " + "[" * 200 + "]" * 200, "nested more than 150 deep"),
        ("a: " + "x" * 300_000, "of YAML is more than 256 KiB"),
        ("services:\n  vllm:\n    image: vllm\n", "'services' is not a flag of it"),
        ("", "expected `name: value` lines"),
    ],
    ids=["alias", "open", "list", "words", "deep", "large", "compose", "empty"],
)
def test_yaml_without_a_config_is_refused_with_its_line(
    text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("server.log").write_text(CAUSE)
    Path("serve.yaml").write_text(text)
    status, printed = explained(capsys, "server.log", "--context", "serve.yaml")
    assert (status, says in printed) == (2, True), printed


def test_yaml_is_read_as_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    line = "torch._dynamo.exc.InternalTorchDynamoError: KeyError: 3"
    Path("server.log").write_text(f"{line}\n")
    for text in (
        "? enforce-eager\n: true\n", "'enforce-eager': !!bool yes\n",
        "---\nmodel: x\ncompilation-config:\n  level: 3\nenforce_eager: yes\n",
    ):  # fmt: skip
        Path("serve.yaml").write_text(text)
        status, printed = explained(capsys, "server.log", "--context", "serve.yaml")
        assert (status, "`--enforce-eager`" in printed) == (0, False), (text, printed)
