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

The printed "KV cache size" is `int(concurrency * L)` from 0.20.2 on, and so depends on L wherever
something does not grow with the context. Before, it was `num_blocks // groups * block_size`: with
four groups a quarter of what the pool holds. For one group both are the same.
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
    """Pages of this model have sizes that no block size makes equal."""


@dataclass(frozen=True)
class Page:
    """What one layer keeps in one block; layers with equal pages share a group."""

    kind: CacheKind
    block_size: int
    size: int
    """Bytes."""
    window: int | None = None
    paddable: bool = True


@dataclass(frozen=True)
class Demand:
    """What a request asks of the pool."""

    context: int
    in_flight: int
    """Tokens scheduled and not yet settled: `max_num_batched_tokens` for each batch in flight."""
    states: int = 1
    """Blocks a recurrent layer holds for one sequence."""
    ranks: int = 1
    """Devices that share the tokens of a sequence (decode context parallelism)."""


@dataclass(frozen=True)
class Bucket:
    """Layers of one group: their numbers, and a page for each."""

    layers: tuple[int, ...]
    pages: tuple[Page, ...]

    @property
    def page(self) -> Page:
        """A page that stands for all of them."""
        return self.pages[0]

    @property
    def bytes_per_block(self) -> int:
        """What one block of this group takes."""
        return sum(page.size for page in self.pages)


def blocks_per_request(page: Page, demand: Demand) -> int:
    """Return how many blocks of one group a request of the planned context holds at most."""
    if page.kind is CacheKind.STATE:
        return demand.states
    if page.kind is CacheKind.SLIDING and page.window is not None:
        tokens = min(page.window - 1 + demand.in_flight, demand.context)
        # A window need not begin where a block begins.
        return ceil(tokens / page.block_size) + 1
    return ceil(ceil(demand.context / demand.ranks) / page.block_size)


def grouped(layers: Sequence[tuple[int, Page]], version: Version) -> list[Bucket]:
    """Group layers as vLLM does: all in one where they are of one kind, else in equal groups.

    Raises `CannotUnifyError` where pages of different sizes cannot be made equal.
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
    """Return whether all layers hold the same tokens, so that one block table serves them all."""
    first = pages[0]
    if len({page.block_size for page in pages}) > 1:
        return False
    if first.kind in GROWING:
        return all(page.kind in GROWING for page in pages)
    if first.kind is CacheKind.STATE:
        return all(page.kind is CacheKind.STATE and page.size == first.size for page in pages)
    return all(page.kind is first.kind and page.window == first.window for page in pages)


def _of_equal_size(layers: Sequence[tuple[int, Page]]) -> list[tuple[int, Page]]:
    """Make all pages as large as the largest: longer blocks where they divide it, else padding."""
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
    """Return which layers each pipeline stage has (vLLM's `get_pp_indices`).

    What does not divide goes to the last stages but the very last, which also has the head.
    """
    sizes = [layers // count] * count
    for extra in range(2, layers % count + 2):
        sizes[-extra] += 1
    starts = [sum(sizes[:stage]) for stage in range(count)]
    return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def bytes_per_block(buckets: Sequence[Bucket], stage: range | None = None) -> int:
    """Return what one block takes on a device that has the layers of `stage`, or all of them."""
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
    """Return the pool that `available` bytes a device make, with the figures vLLM prints."""
    costs = [cost for part in parts or ALL_LAYERS if (cost := bytes_per_block(buckets, part))]
    num_blocks = max(0, available) // max(costs)
    needed = sum(blocks_per_request(bucket.page, demand) for bucket in buckets)
    # As floating-point numbers, because that is how vLLM rounds.
    concurrency = num_blocks / needed
    if version >= versions.TOKENS_ARE_WHOLE_REQUESTS:
        return Pool(num_blocks, int(concurrency * demand.context), concurrency)
    block_size = min(bucket.page.block_size for bucket in buckets)
    return Pool(num_blocks, num_blocks // len(buckets) * block_size * demand.ranks, concurrency)


def needed_bytes(
    buckets: Sequence[Bucket], demand: Demand, version: Version, parts: Sequence[range] | None
) -> int:
    """Return what vLLM asks for at startup: one whole request, and a block kept for itself."""
    blocks = sum(blocks_per_request(bucket.page, demand) for bucket in buckets)
    blocks += version >= versions.NULL_BLOCK_RESERVED
    return blocks * max(bytes_per_block(buckets, part) for part in parts or ALL_LAYERS)


def described(buckets: Sequence[Bucket], demand: Demand) -> tuple[CacheGroup, ...]:
    """Return the groups as a person reads them."""
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
