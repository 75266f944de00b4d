"""vLLM's block pool, computed: pages, groups, blocks, and the two figures vLLM prints.

All layers of all groups draw blocks from one pool. After vLLM 0.32, `v1/core/kv_cache_utils.py`
and `v1/kv_cache_interface.py`:

    page              = block_size * bytes of one token in one layer; equal for all groups
    bytes_per_block   = layers of a group * page           (of the largest group)
    num_blocks        = floor(available / bytes_per_block) (the least over pipeline stages)
    blocks of a request at context L, summed over groups:
        full, latent    ceil(L / block_size)
        sliding window  ceil(min(window - 1 + batches * max_num_batched_tokens, L) / block_size) + 1
        state           1 + drafted tokens, and one more with prefix caching
    concurrency       = num_blocks / blocks of a request

The printed "KV cache size" is `int(concurrency * L)` from 0.20.2 on, so it depends on L if a part
of the cache does not grow with the context. Before, it was `num_blocks // groups * block_size`:
with four groups a quarter of the pool's capacity. For one group both are the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

from pytest_vllm_gates.memory_plan import types as versions
from pytest_vllm_gates.memory_plan.types import CacheGroup, CacheKind, Pool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.memory_plan.types import Version

GROWING = {CacheKind.FULL, CacheKind.LATENT, CacheKind.INDEXER}
HALF_MORE, QUARTER_MORE = 1.5, 1.25
ALL_LAYERS: tuple[range | None, ...] = (None,)


class CannotUnifyError(Exception):
    """No block size makes the pages of this model equal in size."""


@dataclass(frozen=True)
class Page:
    """The part of one layer in one block; layers with equal pages share a group."""

    kind: CacheKind
    block_size: int
    size: int
    """Bytes."""
    window: int | None = None
    paddable: bool = True


@dataclass(frozen=True)
class Demand:
    """The blocks and tokens that a request needs from the pool."""

    context: int
    in_flight: int
    """Scheduled tokens that are not finished: `max_num_batched_tokens` for each batch in flight."""
    states: int = 1
    """Blocks that a recurrent layer uses for one sequence."""
    ranks: int = 1
    """Devices that share the tokens of a sequence (decode context parallelism)."""


@dataclass(frozen=True)
class Bucket:
    """Layers of one group: their numbers, and a page for each."""

    layers: tuple[int, ...]
    pages: tuple[Page, ...]

    @property
    def page(self) -> Page:
        """The first page; all of them are alike."""
        return self.pages[0]

    @property
    def bytes_per_block(self) -> int:
        """The bytes of one block of this group."""
        return sum(page.size for page in self.pages)


def blocks_per_request(page: Page, demand: Demand) -> int:
    """Return how many blocks of one group a request of the planned context uses at most."""
    if page.kind is CacheKind.STATE:
        return demand.states
    if page.kind is CacheKind.SLIDING and page.window is not None:
        tokens = min(page.window - 1 + demand.in_flight, demand.context)
        # A window may begin in the middle of a block.
        return ceil(tokens / page.block_size) + 1
    return ceil(ceil(demand.context / demand.ranks) / page.block_size)


def grouped(layers: Sequence[tuple[int, Page]], version: Version) -> list[Bucket]:
    """Group layers as vLLM does: one group for layers of one kind, else groups of equal size.

    Raises `CannotUnifyError` if pages of different sizes cannot be made equal.
    """
    if _of_one_kind([page for _, page in layers]):
        return [Bucket(tuple(i for i, _ in layers), tuple(page for _, page in layers))]
    equal = _of_equal_size(layers)
    indexes_by_page: dict[Page, list[int]] = {}
    for index, (_, page) in enumerate(equal):
        indexes_by_page.setdefault(page, []).append(index)
    size = _group_size([len(indexes) for indexes in indexes_by_page.values()], version)
    buckets = []
    for page, indexes in indexes_by_page.items():
        count = ceil(len(indexes) / size)
        buckets += [
            Bucket(
                tuple(equal[i][0] for i in indexes[start::count]),
                (page,) * len(indexes[start::count]),
            )
            for start in range(count)
        ]
    return buckets


def _of_one_kind(pages: Sequence[Page]) -> bool:
    """Return whether all layers cache the same tokens, so that they can share one block table."""
    first = pages[0]
    if len({page.block_size for page in pages}) > 1:
        return False
    if first.kind in GROWING:
        return all(page.kind in GROWING for page in pages)
    if first.kind is CacheKind.STATE:
        return all(page.kind is CacheKind.STATE and page.size == first.size for page in pages)
    return all(page.kind is first.kind and page.window == first.window for page in pages)


def _of_equal_size(layers: Sequence[tuple[int, Page]]) -> list[tuple[int, Page]]:
    """Make all pages as large as the largest: by longer blocks if they divide it, else padding."""
    largest = max(page.size for _, page in layers)
    equal = []
    for layer, page in layers:
        if page.size == largest or page.kind is CacheKind.STATE:
            grown = replace(page, size=largest)
        elif largest % page.size == 0:
            grown = replace(page, size=largest, block_size=page.block_size * largest // page.size)
        elif page.paddable:
            grown = replace(page, size=largest)
        else:
            raise CannotUnifyError(f"pages of {page.size} and of {largest} bytes")
        equal.append((layer, grown))
    return equal


def _group_size(counts: Sequence[int], version: Version) -> int:
    """Return how many layers each group has: the fewest of a kind, or the most if that is close."""
    fewest, most = min(counts), max(counts)
    close = HALF_MORE if version >= versions.UNEVEN_GROUPS else QUARTER_MORE
    return most if most < fewest * close else fewest


def stages(layers: int, count: int) -> list[range]:
    """Return the layers of each pipeline stage (vLLM's `get_pp_indices`).

    The remainder goes to the stages before the last one, which also has the head.
    """
    sizes = [layers // count] * count
    for extra in range(2, layers % count + 2):
        sizes[-extra] += 1
    starts = [sum(sizes[:stage]) for stage in range(count)]
    return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def bytes_per_block(buckets: Sequence[Bucket], stage: range | None = None) -> int:
    """Return the bytes of one block on a device that has the layers of `stage`, or all layers."""
    return max(
        sum(
            page.size
            for layer, page in zip(bucket.layers, bucket.pages, strict=True)
            if stage is None or layer in stage
        )
        for bucket in buckets
    )


def pool(
    buckets: Sequence[Bucket],
    available: int,
    demand: Demand,
    version: Version,
    parts: Sequence[range] | None = None,
) -> Pool:
    """Return the pool that fits in `available` bytes a device, with the figures vLLM prints."""
    costs = [cost for part in parts or ALL_LAYERS if (cost := bytes_per_block(buckets, part))]
    num_blocks = max(0, available) // max(costs)
    needed = sum(blocks_per_request(bucket.page, demand) for bucket in buckets)
    # A floating-point division, because vLLM rounds this way.
    concurrency = num_blocks / needed
    if version >= versions.TOKENS_ARE_WHOLE_REQUESTS:
        return Pool(num_blocks, int(concurrency * demand.context), concurrency)
    block_size = min(bucket.page.block_size for bucket in buckets)
    return Pool(num_blocks, num_blocks // len(buckets) * block_size * demand.ranks, concurrency)


def needed_bytes(
    buckets: Sequence[Bucket], demand: Demand, version: Version, parts: Sequence[range] | None
) -> int:
    """Return the bytes that vLLM requires at startup: one whole request and one reserved block."""
    blocks = sum(blocks_per_request(bucket.page, demand) for bucket in buckets)
    blocks += version >= versions.NULL_BLOCK_RESERVED
    return blocks * max(bytes_per_block(buckets, part) for part in parts or ALL_LAYERS)


def described(buckets: Sequence[Bucket], demand: Demand) -> tuple[CacheGroup, ...]:
    """Return the groups in readable form."""
    groups = []
    for bucket in buckets:
        sizes = {page.size for page in bucket.pages}
        kinds = Counter(page.kind.value for page in bucket.pages)
        groups.append(
            CacheGroup(
                kind=" and ".join(kinds),
                layers=len(set(bucket.layers)),
                block_size=bucket.page.block_size,
                page_bytes=sizes.pop() if len(sizes) == 1 else bucket.bytes_per_block,
                blocks_per_request=blocks_per_request(bucket.page, demand),
            )
        )
    return tuple(groups)
