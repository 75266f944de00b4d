"""Checks parallelism: the model can be divided as requested, and every rank has a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.preflight import flags
from pytest_vllm_gates.preflight.gpu import ELSEWHERE, needs_no_gpu, visible
from pytest_vllm_gates.preflight.types import CheckResult, fails, not_applicable, ok, unknown

if TYPE_CHECKING:
    from pytest_vllm_gates.preflight.types import Situation

BIND = "VLLM_CPU_OMP_THREADS_BIND"
VISIBLE_NODES = "CPU_VISIBLE_MEMORY_NODES"
PARTS_OF_ONE_NODE = "VLLM_CPU_SIM_MULTI_NUMA"
KV_HEADS = ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num",
            "num_attention_groups")  # fmt: skip


def gpu_count(situation: Situation) -> CheckResult:
    """The node must have one GPU for each rank."""
    if check_result := needs_no_gpu(situation):
        return check_result
    if situation.machine is None or not situation.machine.devices:
        return unknown("no GPU answers")
    tensor, pipeline = _size(situation), flags.count(situation, "pipeline_parallel_size", 1) or 1
    ranks, visible_count = tensor * pipeline, len(visible(situation, situation.machine))
    if _several_nodes(situation):
        return not_applicable("the ranks are spread over several nodes")
    if ranks <= visible_count:
        return ok(f"{ranks} of {visible_count}")
    hidden = len(situation.machine.devices) - visible_count
    return fails(
        f"World size ({ranks}) is larger than the number of available GPUs ({visible_count}) in "
        f"this node: tensor_parallel_size {tensor} times pipeline_parallel_size {pipeline}",
        cause=f"CUDA_VISIBLE_DEVICES hides {hidden} of them"
        if hidden
        else "the lane was written for a larger machine",
        fix="unset CUDA_VISIBLE_DEVICES"
        if hidden and ranks <= visible_count + hidden
        else f"tensor_parallel_size = {_largest(situation, visible_count // pipeline)} in [serve], "
        "or several nodes: --nnodes",
    )


def cpu_ranks(situation: Situation) -> CheckResult:
    """On the CPU, vLLM binds the threads of each rank to a separate NUMA node.

    See `vllm/utils/ompmultiprocessing.py` of 0.30 to 0.32.
    """
    if situation.bundle.device != "cpu":
        return not_applicable("this lane does not serve on the CPU")
    ranks = _size(situation) * (flags.count(situation, "pipeline_parallel_size", 1) or 1)
    if ranks == 1:
        return not_applicable("one rank uses all cores")
    if _several_nodes(situation):
        return not_applicable("the ranks are spread over several nodes")
    bind = situation.environment.get(BIND) or "auto"
    if bind == "nobind":
        return ok(f"{ranks} ranks, not bound to cores")
    if bind != "auto":
        return _lists_of_cores(bind.split("|"), ranks)
    if situation.machine is None:
        return unknown(ELSEWHERE)
    if situation.environment.get(PARTS_OF_ONE_NODE, "0") != "0":
        return _cores(situation.machine.cores, ranks)
    visible_nodes = situation.environment.get(VISIBLE_NODES)
    return _numa_nodes(
        len(visible_nodes.split(",")) if visible_nodes else situation.machine.numa_nodes, ranks
    )


def _lists_of_cores(lists: list[str], ranks: int) -> CheckResult:
    if len(lists) == ranks:
        return ok(f"{BIND} gives each of {ranks} ranks its cores")
    return fails(
        f"{BIND}: the number of lists of cores, {len(lists)}, doesn't match local world size "
        f"{ranks}",
        cause="each rank uses one of the lists, which are separated by `|`",
        fix=f"set {BIND} in [env] with a list for each rank, for example 0-7|8-15",
    )


def _cores(cores: int, ranks: int) -> CheckResult:
    if cores >= ranks:
        return ok(f"{cores} cores for {ranks} ranks on parts of one NUMA node")
    return fails(
        f"{cores} cores for {ranks} ranks",
        cause=f"{PARTS_OF_ONE_NODE} gives each rank a part of the cores, but there are fewer cores",
        fix="tensor_parallel_size = 1 in [serve]",
    )


def _numa_nodes(nodes: int | None, ranks: int) -> CheckResult:
    if nodes is None:
        return unknown("the number of this machine's NUMA nodes cannot be read")
    if nodes >= ranks:
        return ok(f"{nodes} NUMA nodes for {ranks} ranks")
    return fails(
        f"Not enough allowed NUMA nodes to bind threads of {ranks} local CPUWorkers: there "
        f"{'is 1' if nodes == 1 else f'are {nodes}'}",
        cause="each rank is bound to a separate node, and the lane was written for a machine with "
        "more sockets",
        fix=f"tensor_parallel_size = {nodes} in [serve], or {BIND} in [env] with a list of cores "
        "for each rank, for example 0-7|8-15",
    )


def attention_heads(situation: Situation) -> CheckResult:
    """Tensor parallelism must give every rank the same number of attention heads."""
    size = _size(situation)
    if size == 1:
        return not_applicable("tensor_parallel_size is 1")
    heads = situation.model.integer("num_attention_heads", "n_head")
    if heads is None:
        return unknown("config.json does not contain the number of attention heads")
    if heads % size == 0:
        return ok(f"{heads} heads over {size} ranks")
    return fails(
        f"Total number of attention heads ({heads}) must be divisible by tensor parallel size "
        f"({size})",
        cause="a head cannot be split",
        fix=f"tensor_parallel_size = {_largest(situation, size)} in [serve]",
    )


def kv_heads(situation: Situation) -> CheckResult:
    """Heads of keys and values must be divided evenly, or all copied equally often."""
    size, model = _size(situation), situation.model
    if size == 1:
        return not_applicable("tensor_parallel_size is 1")
    if model.integer("kv_lora_rank"):
        return not_applicable("with latent attention every rank has one whole cache for all heads")
    heads = model.integer(*KV_HEADS) or model.integer("num_attention_heads", "n_head")
    if heads is None:
        return unknown("config.json does not contain the number of heads of keys and values")
    if heads >= size and heads % size == 0:
        return ok(f"{heads // size} of {heads} on each of {size} ranks")
    if heads < size and size % heads == 0:
        return ok(f"each of {heads} copied to {size // heads} of {size} ranks")
    large, small = max(heads, size), min(heads, size)
    return fails(
        f"{large} is not divisible by {small}: {heads} heads of keys and values cannot be divided "
        f"evenly over tensor_parallel_size {size}",
        cause="a rank would have a part of a head",
        fix=f"tensor_parallel_size = {_largest(situation, size)} in [serve]",
    )


def quantization_blocks(situation: Situation) -> CheckResult:
    """Every rank's part of a layer must consist of whole blocks of the weights' scales."""
    size, model = _size(situation), situation.model
    settings = model.quantization or {}
    block = settings.get("weight_block_size")
    if size == 1 or settings.get("quant_method") != "fp8" or not block:
        return not_applicable("no layer that is quantised in blocks is split")
    if not (isinstance(block, list) and len(block) == 2 and all(  # noqa: PLR2004 - rows, columns
        isinstance(extent, int) and extent > 0 for extent in block
    )):  # fmt: skip
        return unknown(f"weight_block_size {block!r} is not a pair of sizes")
    exceptions = [str(setting) for key in ("modules_to_not_convert", "ignored_layers")
            for setting in settings.get(key) or []]  # fmt: skip
    experts = model.integer(
        "num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts"
    )
    dense = model.integer("intermediate_size")
    has_dense = not experts or model.integer("first_k_dense_replace")
    if dense is None and has_dense:
        return unknown("config.json does not contain the width of the layers")
    part = (dense or 0) // size
    if has_dense and dense and (dense % size or part % block[1]):
        if any("mlp" in name or "down_proj" in name for name in exceptions):
            return unknown("some layers are excluded from the quantisation")
        return fails(
            f"Weight input_size_per_partition = {part} is not divisible by weight quantization "
            f"block_k = {block[1]} (intermediate_size {dense} over {size} ranks)",
            cause="the scales belong to blocks that would be split over two ranks",
            fix=f"tensor_parallel_size = {_fitting(dense, block[1], size)} in [serve], with "
            "pipeline or data parallelism for the rest",
        )
    narrow = model.integer("moe_intermediate_size")
    if experts and narrow and not situation.flag("enable_expert_parallel"):
        part = narrow // size
        if narrow % size or part % block[0] or part % block[1]:
            return unknown(
                f"each rank has {part} of the experts' {narrow} columns, which is not a multiple "
                f"of the block size {block[0]}: vLLM refines the blocks if its kernels can, and "
                "refuses otherwise; --enable-expert-parallel keeps experts whole"
            )
    return ok(f"whole blocks of {block[0]}x{block[1]} on each of {size} ranks")


def _size(situation: Situation) -> int:
    return flags.count(situation, "tensor_parallel_size", 1) or 1


def _several_nodes(situation: Situation) -> bool:
    backend = situation.flag("distributed_executor_backend")
    several = (flags.count(situation, "nnodes", 1) or 1) > 1
    return several or backend in ("ray", "external_launcher")


def _largest(situation: Situation, limit: int) -> int:
    """Return the largest tensor-parallel size, up to `limit`, that divides the heads evenly."""
    model = situation.model
    heads = model.integer("num_attention_heads", "n_head") or 1
    keys = (None if model.integer("kv_lora_rank") else model.integer(*KV_HEADS)) or 1
    return max(
        (number for number in range(1, max(1, limit) + 1)
         if heads % number == 0 and (keys % number == 0 or number % keys == 0)),
        default=1,
    )  # fmt: skip


def _fitting(width: int, block: int, limit: int) -> int:
    """Return the largest number of ranks, up to `limit`, that all get whole blocks of `width`."""
    return max(
        (
            number
            for number in range(1, limit + 1)
            if width % number == 0 and width // number % block == 0
        ),
        default=1,
    )
