"""Pages, groups and blocks, laid out as vLLM does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_vllm_gates.memory_plan import types as versions
from pytest_vllm_gates.memory_plan.kv_cache import (
    Bucket,
    Demand,
    Page,
    blocks_per_request,
    bytes_per_block,
    described,
    grouped,
    needed_bytes,
    pool,
)
from pytest_vllm_gates.memory_plan.types import CacheKind

NOW = versions.parsed("0.32.0")


def test_small_pages_get_longer_blocks_and_states_are_padded() -> None:
    layers = [
        (0, Page(CacheKind.STATE, 100, 30)), (1, Page(CacheKind.FULL, 16, 60)),
        (2, Page(CacheKind.SLIDING, 16, 30, 4)), (3, Page(CacheKind.SLIDING, 16, 50, 4)),
    ]  # fmt: skip
    pages = [
        (bucket.page.kind, bucket.page.block_size, bucket.page.size)
        for bucket in grouped(layers, NOW)
    ]
    assert repr(pages) == repr(
        [
            (CacheKind.STATE, 100, 60),
            (CacheKind.FULL, 16, 60),
            (CacheKind.SLIDING, 32, 60),
            (CacheKind.SLIDING, 16, 60),
        ]
    )


@pytest.mark.parametrize(
    ("windows", "full", "version", "size"),
    [
        (10, 12, versions.parsed("0.9.1"), 12),
        (10, 13, versions.parsed("0.9.1"), 10),
        (10, 14, versions.UNEVEN_GROUPS, 14),
        (10, 15, NOW, 10),
        (14, 10, NOW, 14),
        (10, 50, NOW, 10),
    ],
)
def test_group_size_is_fewest_or_nearby_most_layers_of_a_kind(
    windows: int, full: int, version: versions.Version, size: int
) -> None:
    pages = [Page(CacheKind.SLIDING, 16, 60, 4)] * windows + [Page(CacheKind.FULL, 16, 60)] * full
    buckets = grouped(list(enumerate(pages)), version)
    assert max(len(bucket.layers) for bucket in buckets) == size
    assert sorted(layer for bucket in buckets for layer in bucket.layers) == list(
        range(windows + full)
    )


def test_request_needs_blocks_of_its_window_or_context() -> None:
    window, full = Page(CacheKind.SLIDING, 16, 60, 4), Page(CacheKind.FULL, 16, 60)
    assert blocks_per_request(window, Demand(1000, in_flight=13)) == 1 + 1
    assert blocks_per_request(window, Demand(1000, in_flight=14)) == 2 + 1
    assert blocks_per_request(window, Demand(20, in_flight=8192)) == 2 + 1
    assert blocks_per_request(full, Demand(1000, in_flight=8192)) == 63
    assert blocks_per_request(full, Demand(1000, in_flight=8192, ranks=2)) == 32
    assert (
        blocks_per_request(Page(CacheKind.STATE, 16, 60), Demand(1000, in_flight=1, states=3)) == 3
    )
    assert blocks_per_request(replace(full, window=4), Demand(1000, in_flight=13)) == 63
    assert blocks_per_request(replace(window, window=None), Demand(1000, in_flight=13)) == 63


def test_context_parallel_devices_store_more_tokens() -> None:
    buckets = grouped([(0, Page(CacheKind.FULL, 16, 60))], NOW)
    old = pool(buckets, 600, Demand(1000, in_flight=1, ranks=2), versions.parsed("0.20.1"))
    assert (old.num_blocks, old.tokens) == (10, 320)


def test_boot_needs_a_request_and_a_block_on_the_fullest_stage() -> None:
    buckets = grouped([(layer, Page(CacheKind.FULL, 16, 60)) for layer in range(3)], NOW)
    demand, reserved = Demand(160, in_flight=1), versions.NULL_BLOCK_RESERVED
    assert needed_bytes(buckets, demand, (0, 0, 1), None) == 10 * 180
    assert needed_bytes(buckets, demand, reserved, None) == 11 * 180
    assert needed_bytes(buckets, demand, reserved, [range(1), range(1, 3)]) == 11 * 120


@pytest.mark.parametrize(
    ("pages", "groups"),
    [
        ([Page(CacheKind.FULL, 16, 60), Page(CacheKind.INDEXER, 16, 10)], 1),
        ([Page(CacheKind.FULL, 16, 60), Page(CacheKind.FULL, 32, 60)], 2),
        ([Page(CacheKind.STATE, 16, 60), Page(CacheKind.STATE, 16, 60)], 1),
        ([Page(CacheKind.STATE, 16, 60), Page(CacheKind.FULL, 16, 60)], 2),
        ([Page(CacheKind.SLIDING, 16, 60, 4), Page(CacheKind.SLIDING, 16, 60, 8)], 2),
    ],
)
def test_layers_that_cache_the_same_tokens_share_a_group(pages: list[Page], groups: int) -> None:
    assert len(grouped(list(enumerate(pages)), NOW)) == groups


def test_states_of_two_sizes_are_made_equal() -> None:
    layers = [(0, Page(CacheKind.STATE, 16, 60)), (1, Page(CacheKind.STATE, 16, 30))]
    (bucket,) = grouped(layers, NOW)
    assert [page.size for page in bucket.pages] == [60, 60]


def test_stage_counts_only_its_own_layers() -> None:
    pages = (
        Page(CacheKind.FULL, 16, 60),
        Page(CacheKind.LATENT, 16, 10),
        Page(CacheKind.INDEXER, 16, 1),
    )
    buckets = [Bucket((0, 1, 2), pages)]
    assert bytes_per_block(buckets) == 71
    assert [bytes_per_block(buckets, range(layer, layer + 1)) for layer in range(3)] == [60, 10, 1]
    (group,) = described(buckets, Demand(1000, in_flight=1))
    assert (group.kind, group.layers, group.page_bytes) == (
        "full attention and latent attention and sparse indexer", 3, 71,
    )  # fmt: skip
