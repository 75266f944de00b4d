"""`vllm-gates plan`: plans a model's memory: context length and concurrent requests that fit."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.checkpoints import hub_weights, resolve
from pytest_vllm_gates.checkpoints.safetensors import weights_bytes
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.machine import known_gpus
from pytest_vllm_gates.memory_plan import types as versions
from pytest_vllm_gates.memory_plan.fit import gibibytes
from pytest_vllm_gates.memory_plan.plan import HEADROOM, plan
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import GIB, Room, Serving
from pytest_vllm_gates.report import memory_plan_tables as tables
from pytest_vllm_gates.report.memory_plan import as_json, as_text

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction

    from pytest_vllm_gates.memory_plan.types import MemoryPlan, ModelShape

UNITS = {"": 1, "b": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 2**10, "mi": 2**20, "gi": GIB}
EVERY = "all"
COUNTS = (1, 2, 4, 8)
USABLE_PERCENT = 99
QUANTISATION_BESIDE = "hf_quant_config.json"
"""The file of ModelOpt's table up to 0.29; vLLM reads it if config.json has no table."""
LEAST_BYTES = 2**20
"""Numbers without a unit are bytes from here on, and GiB below."""


def declare(commands: _SubParsersAction[Any]) -> None:
    """Add the command's arguments, under vLLM's names if vLLM has them."""
    parser = commands.add_parser("plan", help=(__doc__ or "").partition(": ")[2].strip())
    parser.set_defaults(run=run, a100=False)
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="a folder, a config.json, or a Hub id"
    )
    parser.add_argument("--config", metavar="FILE", help="a config.json, or its folder")
    parser.add_argument("-tp", "--tp", "--tensor-parallel-size", dest="tp", type=int, default=1)
    parser.add_argument("-pp", "--pp", "--pipeline-parallel-size", dest="pp", type=int, default=1)
    parser.add_argument(
        "-dcp", "--dcp", "--decode-context-parallel-size", dest="dcp", type=int, default=1
    )
    parser.add_argument(
        "--max-model-len", type=tokens, metavar="TOKENS", action="append",
        help="the context; repeat it to print a table of several",
    )  # fmt: skip
    parser.add_argument("--max-num-batched-tokens", type=tokens, metavar="TOKENS")
    parser.add_argument("--max-num-seqs", type=int)
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--block-size", type=int)
    parser.add_argument("--mamba-cache-dtype", default="auto")
    parser.add_argument("--mamba-ssm-cache-dtype", default="auto")
    parser.add_argument("--num-speculative-tokens", type=int, default=0)
    parser.add_argument(
        "--drafter-layers", type=int, help="layers that the drafter adds to the cache"
    )
    parser.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction)
    parser.add_argument("--async-scheduling", action=argparse.BooleanOptionalAction)
    parser.add_argument("--disable-hybrid-kv-cache-manager", action="store_true")
    parser.add_argument("--quantization", "-q", help="how the weights are quantised when loaded")
    parser.add_argument("--vllm-version", default=Serving.vllm_version)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument(
        "--avx512-bf16", action=argparse.BooleanOptionalAction, default=True,
        help="whether the processor of --device cpu has it; then a recurrent state is float32",
    )  # fmt: skip
    parser.add_argument("--enforce-eager", action="store_true", help="without CUDA graphs")
    parser.add_argument("--blackwell", action="store_true", help="a device of the 10x generation")
    parser.add_argument(
        "--gpu", metavar="NAME",
        help=f"a GPU by name ({', '.join(known_gpus.table())}), or `all` for a table of all GPUs",
    )  # fmt: skip
    parser.add_argument(
        "--gpu-memory", type=gpu_size, metavar="SIZE",
        help="memory of one device: 80GiB, or the vendor's size, 80GB",
    )  # fmt: skip
    parser.add_argument("--gpu-memory-utilization", type=float)
    parser.add_argument("--overhead", type=size, metavar="SIZE", help="memory of the runtime")
    parser.add_argument(
        "--kv-memory", type=size, metavar="SIZE",
        help="the available KV cache memory that vLLM prints: 14.39GiB",
    )  # fmt: skip
    parser.add_argument(
        "--headroom", type=float, default=HEADROOM, help="the share to keep free: 0.1"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: Namespace) -> int:
    """Print the plan; 1 if the model does not fit, or if that is not known."""
    notes: list[str] = []
    name, shape, in_files = _model(options, notes)
    check_version(options.vllm_version)
    contexts = options.max_model_len or [None]
    if options.gpu == EVERY:
        return _every_gpu(options, name, shape, in_files, contexts[0])
    _device(options, notes)
    made = []
    for context in contexts:
        planned = plan(shape, serving(options, context), room(options, in_files), options.headroom)
        made.append(replace(planned, notes=(*notes, *planned.notes)))
    if len(made) > 1:
        print(
            json.dumps([as_json(name, each) for each in made], indent=2)
            if options.json
            else tables.contexts(made)
        )
    else:
        print(json.dumps(as_json(name, made[0]), indent=2) if options.json else as_text(made[0]))
    has_memory = options.kv_memory is not None or options.gpu_memory is not None
    return int(any(bool(each.refused) or (has_memory and not each.fits) for each in made))


def _model(options: Namespace, notes: list[str]) -> tuple[str, ModelShape, int | None]:
    """Return the model's name, its shape and its weights' bytes if its files have them."""
    if (options.model is None) == (options.config is None):
        raise UserError("give one model: a folder, a config.json or a Hub id such as org/name")
    given = options.model or options.config
    is_hub = options.config is None and resolve.HUB_ID.fullmatch(given)
    if is_hub and not Path(given).exists():
        _, config = read_config(hub_weights.configs(given))
        shape = shape_of(config)
        in_files, problem = hub_weights.weights_bytes(given, shape.layers)
        notes += [problem] if problem else []
        return given, shape, in_files
    path, config = read_config(Path(given).expanduser())
    shape = shape_of(config)
    return str(path), shape, weights_bytes(path.parent, shape.layers)


def _device(options: Namespace, notes: list[str]) -> None:
    """Set the options to the named GPU's memory, and add a note on how it was read."""
    if options.gpu and options.gpu_memory is not None:
        raise UserError("--gpu and --gpu-memory: give only one of them")
    if options.gpu:
        gpu = known_gpus.named(options.gpu)
        options.gpu_memory, options.blackwell = gpu.usable_bytes, gpu.blackwell
        options.a100 = gpu.a100
        estimate = ", less 1 %, an estimate" if gpu.estimated else ""
        notes.append(
            f"{gpu.product}: {gibibytes(gpu.usable_bytes)} usable of {gpu.sold_as} "
            f"({gpu.source}{estimate})"
        )
    elif isinstance(options.gpu_memory, VendorSize):
        notes.append(
            f"{options.gpu_memory.sold_as} is read as a GPU vendor's size: "
            f"{gibibytes(options.gpu_memory)} usable; use GiB for an exact size"
        )


def _every_gpu(
    options: Namespace, name: str, shape: ModelShape, in_files: int | None, context: int | None
) -> int:
    """Print how many of each known GPU the model needs; 1 if it fits on none."""
    rows: list[tuple[known_gpus.KnownGpu, int, MemoryPlan | None]] = []
    for gpu in known_gpus.table().values():
        for count in COUNTS:
            options.tp, options.gpu_memory = count, gpu.usable_bytes
            options.blackwell, options.a100 = gpu.blackwell, gpu.a100
            try:
                made = plan(
                    shape, serving(options, context), room(options, in_files), options.headroom
                )
            except UserError:
                continue  # the model cannot be split over this many
            if made.refused:
                raise UserError(f"{name}: refused: {made.refused[0]}")
            if made.fits:
                rows.append((gpu, count, made))
                break
        else:
            rows.append((gpu, 0, None))
    print(json.dumps(tables.gpus_json(rows), indent=2) if options.json else tables.gpus(rows))
    return int(not any(count for _, count, _ in rows))


def check_version(text: str) -> None:
    """Raise `UserError` for a version of vLLM that is newer than the plan supports."""
    if versions.parsed(text)[:2] > versions.NEWEST:
        newest = ".".join(map(str, versions.NEWEST))
        raise UserError(
            f"--vllm-version {text} is newer than {newest}, the newest version that the plan "
            f"supports\nplan with --vllm-version {newest}.0, or update vllm-gates"
        )


def serving(options: Namespace, context: int | None) -> Serving:
    """Return the flags as a record, for one of the contexts."""
    return Serving(
        tensor_parallel_size=options.tp,
        pipeline_parallel_size=options.pp,
        decode_context_parallel_size=options.dcp,
        max_model_len=context,
        max_num_batched_tokens=options.max_num_batched_tokens,
        max_num_seqs=options.max_num_seqs,
        kv_cache_dtype=options.kv_cache_dtype,
        dtype=options.dtype,
        block_size=options.block_size,
        mamba_cache_dtype=options.mamba_cache_dtype,
        mamba_ssm_cache_dtype=options.mamba_ssm_cache_dtype,
        num_speculative_tokens=options.num_speculative_tokens,
        drafter_layers=options.drafter_layers,
        enable_prefix_caching=options.enable_prefix_caching,
        async_scheduling=options.async_scheduling,
        disable_hybrid_kv_cache_manager=options.disable_hybrid_kv_cache_manager,
        quantization=options.quantization,
        vllm_version=options.vllm_version,
        device=options.device,
        accelerated_state=options.avx512_bf16,
        device_memory=options.gpu_memory,
        blackwell=options.blackwell,
        a100=options.a100,
        enforce_eager=options.enforce_eager,
    )


def room(options: Namespace, in_files: int | None) -> Room:
    """Return the source of the cache's memory."""
    return Room(
        kv_memory=options.kv_memory,
        device_memory=options.gpu_memory if options.kv_memory is None else None,
        utilization=options.gpu_memory_utilization,
        overhead=options.overhead,
        weights=in_files,
    )


def read_config(path: Path) -> tuple[Path, dict[str, Any]]:
    """Return a checkpoint's config.json; raises `UserError` without one."""
    file = path / "config.json" if path.is_dir() else path
    config = bounded_read.json(file, whole=True)
    if not isinstance(config, dict):
        raise UserError(f"{file}: not a table of a model's settings")
    beside = file.parent / QUANTISATION_BESIDE
    if config.get("quantization_config") is None and beside.is_file():
        table = bounded_read.json(beside, whole=True)
        if not isinstance(table, dict):
            raise UserError(f"{beside}: not a table of a quantisation's settings")
        config = {**config, "quantization_config": table}
    return file, config


def size(text: str) -> int:
    """Return a size in bytes: "80GiB", "14.39" (GiB) or "85899345920" (bytes)."""
    match = re.fullmatch(r"\s*(-?[\d.,_]+)\s*([kmg]i?|)b?\s*", text, re.IGNORECASE)
    try:
        amount = float(match[1].replace(",", "").replace("_", "")) if match else None
    except ValueError:
        amount = None
    if not match or amount is None:
        raise argparse.ArgumentTypeError(
            f"expected a size like 80GiB, 14.39 or 85899345920, got {text!r}"
        )
    if not match[2]:
        return int(amount * GIB) if abs(amount) < LEAST_BYTES else int(amount)
    return int(amount * UNITS[match[2].lower()])


class VendorSize(int):
    """A GPU's usable memory by its vendor's size."""

    sold_as = ""


def gpu_size(text: str) -> int:
    """Return a GPU's memory: "80GB" is a vendor's size, anything else an exact size.

    A GPU sold with 80 GB has 80 GiB of memory; the driver uses about 1 % of it.
    """
    match = re.fullmatch(r"\s*(\d+)\s*GB\s*", text, re.IGNORECASE)
    if not match:
        return size(text)
    found = VendorSize(int(match[1]) * GIB * USABLE_PERCENT // 100)
    found.sold_as = f"{match[1]}GB"
    return found


def tokens(text: str) -> int:
    """Return a number of tokens as vLLM reads it: "131072", "128k" (1000s), "128K" (1024s)."""
    match = re.fullmatch(r"\s*([\d,_]+(?:\.\d+)?)([kKmM]?)\s*", text)
    if not match:
        raise argparse.ArgumentTypeError(f"expected tokens like 131072 or 128k, got {text!r}")
    factor = {"": 1, "k": 1000, "K": 2**10, "m": 1000**2, "M": 2**20}[match[2]]
    return int(float(match[1].replace(",", "").replace("_", "")) * factor)
