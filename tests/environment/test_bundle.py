"""An environment's support, read from files as vLLM, torch and transformers write them."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest
import zstandard

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.environment import (
    bundle,
    environment,
    fatbin,
    installed,
    libraries,
    packed_code,
)
from pytest_vllm_gates.environment.types import Bundle, Code, Kernels, UnmetRequirement

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "torch/version.py": "from typing import Optional\n__version__ = '2.13.0+cu130'\n"
    "cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n",
    "torch/cuda/__init__.py": "import torch\nPYTORCH_RELEASES_CODE_CC: dict[str, dict]"
    ' = {"13.0": {"x86_64": {75, 80, 120}, "aarch64": {75, 80, 120}}}\n',
    "vllm/model_executor/models/registry.py": "import torch\n"
    '_TEXT_GENERATION_MODELS = {"AForCausalLM": ("a", "A")}\n'
    "_VLLM_MODELS = {**_TEXT_GENERATION_MODELS}\n"
    '_PREVIOUSLY_SUPPORTED_MODELS = {"OldForCausalLM": "0.9.2"}\n'
    '_OOT_SUPPORTED_MODELS = {"Bart": "https://example.org"}\n',
    "vllm/config/cache.py": "class C:\n"
    "    gpu_memory_utilization: float = Field(default=0.92, gt=0, le=1)\n",
    "vllm/transformers_utils/config.py": 'R = LazyConfigDict(deepseek_v4="DeepseekV4Config")\n',
    "vllm/model_executor/layers/quantization/__init__.py": "from typing import Literal\n"
    'QuantizationMethods = Literal["awq", "fp8"]\n',
    "vllm/model_executor/layers/quantization/inc/inc.py": "class INC:\n"
    '    def override_quantization_method(cls, hf):\n        return hf["m"] == "auto-round"\n'
    '    def other(self):\n        return "no"\n',
    "transformers/models/auto/auto_mappings.py": "from collections import OrderedDict\n"
    'CONFIG_MAPPING_NAMES = OrderedDict([("qwen3_5", "Qwen3_5Config")])\n',
    "transformers/models/auto/modeling_auto.py": 'M = OrderedDict([("olmo", "OlmoForCausalLM")])\n',
    "vllm-0.32.0.dist-info/METADATA": "Metadata-Version: 2.4\nName: vllm\nRequires-Dist: regex\n"
    "Requires-Dist: transformers<5.20.0,>=5.16.1\nRequires-Dist: tokenizers>=0.23.2\n"
    'Requires-Dist: torch==2.13.0; platform_system == "Linux"\n'
    'Requires-Dist: torch==1.0; platform_system == "Darwin"\n'
    'Requires-Dist: safetensors>=9; extra == "bench"\nRequires-Dist: !\n\n'
    "Requires-Dist: torch==0\n",
    "torch-2.13.0+cu130.dist-info/METADATA": "",
    "transformers-4.57.1.dist-info/METADATA": "Requires-Dist: tokenizers<=0.23.0,>=0.22.0\n",
    "tokenizers-0.22.1.dist-info/METADATA": "",
    "nvidia_nccl_cu13-2.29.7.dist-info/METADATA": "",
    "more-1.0.dist-info/entry_points.txt": "[vllm.general_plugins]\nx = more:register\n",
    "plain-1.0.dist-info/entry_points.txt": "[console_scripts]\nx = plain:main\n",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def read(site: Path) -> Bundle:
    return bundle.read([site], installed.versions([site]), "3.12.3")


def test_an_environment_is_read_without_importing_it(site: Path) -> None:
    brought = read(site)
    assert (brought.vllm, brought.device, brought.torch_cuda) == ("0.32.0", "cuda", "13.0")
    assert brought.nccl == "2.29.7"
    assert brought.architectures == {"AForCausalLM"}
    assert brought.gone == {"OldForCausalLM": "0.9.2"}
    assert "OlmoForCausalLM" in brought.transformers_architectures
    assert {"qwen3_5", "deepseek_v4"} <= brought.model_types
    assert brought.quantizations == {"awq", "fp8"}
    assert brought.taken_over == {"m", "auto-round"}
    assert brought.utilization == 0.92
    assert brought.plugins == ("more",)
    assert brought.locations["vllm"] == str(site / "vllm")


def test_declared_but_missing_package_is_named(site: Path) -> None:
    assert read(site).unmet == (
        UnmetRequirement("vllm 0.32.0", "transformers<5.20.0,>=5.16.1", "4.57.1"),
        UnmetRequirement("vllm 0.32.0", "tokenizers>=0.23.2", "0.22.1"),
    )


def test_torchvision_declares_the_torch_that_it_was_compiled_for(site: Path) -> None:
    """On an H100, torchvision 0.26.0 beside torch 2.13.0: torchvision::nms did not exist."""
    folder = site / "torchvision-0.26.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Requires-Dist: numpy\nRequires-Dist: torch (==2.11.0)\n")
    assert (
        UnmetRequirement("torchvision 0.26.0", "torch==2.11.0", "2.13.0+cu130") in read(site).unmet
    )


def test_torchvision_that_vllm_declares_is_required(site: Path) -> None:
    """GLM on an H100 without it: the engine died of the import while it warmed up."""
    metadata = site / "vllm-0.32.0.dist-info" / "METADATA"
    metadata.write_text("Requires-Dist: torchvision==0.28.0\n" + metadata.read_text())
    assert UnmetRequirement("vllm 0.32.0", "torchvision==0.28.0", None) in read(site).unmet


def test_shadowed_distributions_declare_nothing(site: Path, tmp_path: Path) -> None:
    """An environment made with --system-site-packages has two of many a package."""
    below = tmp_path / "below"
    for name in ("transformers-4.0", "vllm-0.32.0"):
        (below / f"{name}.dist-info").mkdir(parents=True)
        (below / f"{name}.dist-info" / "METADATA").write_text("Requires-Dist: tokenizers==0.1\n")
    folders = [site, below]
    brought = bundle.read(folders, installed.versions(folders), "3.12.3")
    assert brought.unmet == read(site).unmet


def test_torch_kernels_are_read_from_its_own_table(site: Path) -> None:
    brought = read(site)
    assert brought.torch_kernels == Kernels((75, 80, 120), ptx=None)
    assert brought.vllm_kernels is None


@pytest.mark.parametrize("text", ["", "def (", "__version__ = '1'\n", "\0"])
def test_torch_without_the_table_has_unknown_kernels(site: Path, text: str) -> None:
    (site / "torch/version.py").write_text(text)
    assert (read(site).device, read(site).torch_cuda) == (None, None)


@pytest.mark.parametrize(
    ("version", "device"),
    [("cuda = None\nhip = '6.4'\n", "rocm"), ("cuda = None\nhip = None\n", "cpu")],
)
def test_device_follows_the_distribution(site: Path, version: str, device: str) -> None:
    (site / "torch/version.py").write_text(version)
    assert read(site).device == device


def test_an_empty_environment_brings_nothing(tmp_path: Path) -> None:
    assert read(tmp_path) == Bundle()


def library(kernels: list[tuple[int, int]], *, name: bytes = b".nv_fatbin") -> bytes:
    """Return a library with one container of kernels: (kind, architecture), 2 for machine code."""
    bodies = b"".join(
        struct.pack("<HHIQIIHHI", kind, 0x101, 64, 8, 0, 0, 0, 8, arch).ljust(64, b"\0") + b"\0" * 8
        for kind, arch in kernels
    )
    section = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(bodies)) + bodies
    names = b"\0" + name + b"\0.shstrtab\0"
    offset = 64
    header = struct.Struct("<IIQQQQIIQQ")
    table = (
        header.pack(*[0] * 10)
        + header.pack(1, 1, 0, 0, offset, len(section), 0, 0, 8, 0)
        + header.pack(2 + len(name), 3, 0, 0, offset + len(section), len(names), 0, 0, 1, 0)
    )
    start = offset + len(section) + len(names)
    elf = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, start, 0, 64, 0, 0, 64, 3, 2
    )
    return elf + section + names + table


def test_kernels_are_read_from_a_librarys_headers(tmp_path: Path) -> None:
    path = tmp_path / "_C.abi3.so"
    path.write_bytes(library([(2, 80), (2, 90), (1, 90)]))
    assert fatbin.kernels(path) == Kernels((80, 90), (90,))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x7fELF\x02\x01",
        b"no library",
        library([(2, 90)])[:90],
        library([(2, 90)], name=b".b"),
    ],
)
def test_file_without_kernels_is_unknown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(content)
    assert fatbin.kernels(path) is None
    assert fatbin.kernels(tmp_path / "absent.so") is None


def test_compiled_libraries_come_before_the_table(site: Path) -> None:
    for name, arch in (("torch/lib/libtorch_cuda.so", 90), ("vllm/_C.abi3.so", 80)):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(library([(2, arch)]))
    brought = read(site)
    assert brought.torch_kernels == Kernels((90,), ())
    assert brought.vllm_kernels == Kernels((80,), ())


@pytest.mark.real
@pytest.mark.parametrize("name", ["cpu", pytest.param("cpu-previous", marks=pytest.mark.slow)])
def test_released_vllms_are_read(name: str, tmp_path: Path) -> None:
    prepared = environment.prepare(
        lanes.load(name, tmp_path), cache=files.default_cache(), progress=print
    )
    brought = bundle.read(prepared.folders, prepared.versions)
    assert (brought.device, brought.unmet) == ("cpu", ())
    assert {"Qwen3_5ForCausalLM", "DeepseekV4ForCausalLM"} <= brought.architectures
    assert {"qwen3_5", "deepseek_v4", "gemma4"} <= brought.model_types
    assert {"fp8", "compressed-tensors"} <= brought.quantizations
    assert "auto-round" in brought.taken_over
    assert brought.gone["Phi3SmallForCausalLM"] == "0.9.2"


def fatbin_library(*containers: list[tuple[int, int, tuple[int, int], bytes]]) -> bytes:
    """Return a library of several containers of (kind, architecture, version, body)."""
    section = b""
    for entries in containers:
        bodies = b""
        for kind, arch, (major, minor), body in entries:
            padded = body.ljust(-(-len(body) // 8) * 8, b"\0")
            head = struct.pack("<HHIQIIHHI", kind, 0x101, 64, len(padded), 0, 0, minor, major, arch)
            bodies += head.ljust(64, b"\0") + padded
        section += struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(bodies)) + bodies
    whole = library([(2, 1)])
    old = whole[64 : 64 + 16 + 72]
    table = struct.unpack_from("<Q", whole, 0x28)[0]
    rest, moved = bytearray(whole[64 + len(old) :]), len(section) - len(old)
    header = bytearray(whole[:64])
    struct.pack_into("<Q", header, 0x28, table + moved)
    at = table - 64 - len(old)
    struct.pack_into("<Q", rest, at + 64 + 32, len(section))
    struct.pack_into("<Q", rest, at + 128 + 24, 64 + len(section))
    return bytes(header) + section + bytes(rest)


def test_containers_have_versions_and_suffixes(tmp_path: Path) -> None:
    cubin = bytearray(b"\x7fELF\x02\x01\x01\x33\x08".ljust(64, b"\0"))
    struct.pack_into("<I", cubin, 0x30, 0x8)
    old_cubin = bytearray(b"\x7fELF\x02\x01\x01\x33\x07".ljust(64, b"\0"))
    struct.pack_into("<I", old_cubin, 0x30, 0x800)
    target = b"//\n.version 8.8\n.target sm_120a\n"
    path = tmp_path / "vllm/_C.abi3.so"
    path.parent.mkdir()
    path.write_bytes(
        fatbin_library(
            [(2, 80, (1, 7), b"packed"), (1, 80, (8, 8), b"packed")],
            [(2, 120, (1, 8), bytes(cubin)), (2, 90, (1, 7), bytes(old_cubin))],
            [(1, 120, (8, 8), target)],
        )
    )
    assert fatbin.containers(path) == {
        frozenset({Code(80), Code(80, ptx=True, version=(8, 8))}),
        frozenset({Code(120, suffix="a"), Code(90, suffix="a")}),
        frozenset({Code(120, ptx=True, version=(8, 8), suffix="a")}),
    }
    (read_library,) = libraries.read([tmp_path])
    assert read_library.name == "vllm/_C.abi3.so" and len(read_library.containers) == 3
    assert str(Code(120, ptx=True, suffix="a")) == "compute_120a"
    assert fatbin.containers(tmp_path / "absent.so") == frozenset()


def test_flashinfers_compiled_kernels_in_the_home_folder_are_read(tmp_path: Path) -> None:
    made = tmp_path / ".cache/flashinfer/0.6.17/121a/cached_ops/norm/norm.so"
    made.parent.mkdir(parents=True)
    made.write_bytes(fatbin_library([(2, 121, (1, 8), b"")], [(1, 120, (9, 0), b"")]))
    (made.parent / "norm.cuda.o").write_bytes(b"")
    (found,) = libraries.compiled_here({"HOME": str(tmp_path)})
    assert found.name == "~/.cache/flashinfer/0.6.17/121a/cached_ops/norm/norm.so"
    assert {str(code) for codes in found.containers for code in codes} == {"sm_121", "compute_120"}
    assert libraries.compiled_here({"HOME": "/nowhere"}) == ()
    elsewhere = {"HOME": "/nowhere", "FLASHINFER_WORKSPACE_BASE": str(tmp_path)}
    assert libraries.compiled_here(elsewhere) == (found,)


def lz4_literals(content: bytes) -> bytes:
    """Return an LZ4 block: the content's last word copied once more from what was before."""
    length = len(content)
    more = b"\xff" * ((length - 15) // 255) + bytes([(length - 15) % 255])
    return b"\xf0" + more + content + (8).to_bytes(2, "little") + b"\x50" + b"e" * 5


@pytest.mark.parametrize(
    ("kind", "body", "suffix"),
    [
        (1, b".version 8.8\n.target sm_120a\n.address_size 64\n", "a"),
        (1, b".version 8.8\n.target sm_121f, debug\n.address_size 64\n", "f"),
        (1, b".version 8.8\n.target sm_80\n.address_size 64\n", ""),
        (2, b"\x7fELF\x02\x01\x01\x41\x08".ljust(48, b"\0") + b"\x08\0\0\0".ljust(16, b"\0"), "a"),
        (2, b"\x7fELF\x02\x01\x01\x41\x08".ljust(64, b"\0"), ""),
    ],
)
def test_suffixes_of_packed_code_are_read(
    kind: int, body: bytes, suffix: str, tmp_path: Path
) -> None:
    packed = lz4_literals(body)
    whole = bytearray(fatbin_library([(kind, 120, (8, 8), packed)]))
    at = whole.index(packed) - 64 + 40
    path = tmp_path / "packed.so"
    path.write_bytes(whole)
    assert {code.suffix for code in next(iter(fatbin.containers(path)))} <= {"", suffix}
    whole[at : at + 8] = (0x2011).to_bytes(8, "little")
    path.write_bytes(whole)
    assert [code.suffix for code in next(iter(fatbin.containers(path)))] == [suffix]
    path.write_bytes(fatbin_library([(kind, 120, (8, 8), zstandard.compress(body))]))
    assert [code.suffix for code in next(iter(fatbin.containers(path)))] == [suffix]


def test_zstd_frames_are_unpacked_as_far_as_they_go() -> None:
    frame = zstandard.compress(b"head" + bytes(10**6))
    assert packed_code.zstd_head(frame, 4) == b"head"
    assert packed_code.zstd_head(frame, 512) == b"head".ljust(512, b"\0")
    # Data that is not a frame, or cut or damaged, ends early.
    assert packed_code.zstd_head(b"", 9) == packed_code.zstd_head(b"\0" * 99, 9) == b""
    assert packed_code.zstd_head(frame[:5], 9) == b""
    noise = random.Random(5).randbytes(400_000)  # noqa: S311 - no secret
    packed = zstandard.compress(noise)
    assert packed_code.zstd_head(packed[:140_000], 512) == noise[:512]
    assert packed_code.zstd_head(packed_code.ZSTD + noise[:999], 512) == b""


def test_lz4_blocks_are_unpacked_as_far_as_they_go() -> None:
    assert packed_code.lz4_head(b"\x40abcd\x04\x00\x00\x00", 100) == b"abcdabcd"
    assert packed_code.lz4_head(b"\x1fa\x01\x00\x00", 100) == b"a" * 20
    assert packed_code.lz4_head(b"\x1fa\x01\x00\x00", 5) == b"aaaaa"
    # Data that is not a block ends early, and takes no time.
    assert packed_code.lz4_head(b"\x1fa\x09\x00\x00", 100) == b"a"
    assert packed_code.lz4_head(b"", 100) == packed_code.lz4_head(b"\xf0\xff\xff", 100) == b""
    assert len(packed_code.lz4_head(b"\x1fa\x01\x00" + b"\xff" * 4000, 512)) <= 512
