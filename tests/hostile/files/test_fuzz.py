"""Changed good files are read or refused by every loader: no traceback, and in time.

CI tries a fixed choice. The long run, by hand, tries a thousand files a loader, some 30,000:
pytest tests/hostile/files/test_fuzz.py --hypothesis-profile long -s
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from hostile.files.loaders import LOADERS, REFUSES
from hostile.files.mutations import changed

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_S = 5.0
"""Processor time of one file; the slowest so far takes a fifth of it on a slow machine."""


@pytest.fixture(scope="module")
def figures() -> Iterator[Counter[str]]:
    """Count what became of the files; printed at the end."""
    counts: Counter[str] = Counter()
    yield counts
    slowest = counts.pop("slowest_ms", 0) / 1000
    print(f"\nfuzzed: {dict(counts)}, the slowest took {slowest:.2f} s")


@pytest.mark.parametrize("name", LOADERS)
def test_changed_file_is_read_or_refused(
    name: str, tmp_path_factory: pytest.TempPathFactory, figures: Counter[str]
) -> None:
    loader = LOADERS[name]
    sample = loader.sample()
    path = loader.path(tmp_path_factory.mktemp(name))
    path.write_bytes(sample)
    loader.load(path)

    @settings(suppress_health_check=list(HealthCheck))
    @given(data=st.shared(changed(sample, loader.kind), key=name))
    def fuzz(data: bytes) -> None:
        path.write_bytes(data)
        begun = time.process_time()
        try:
            loader.load(path)
            figures["read"] += 1
        except REFUSES:
            figures["refused"] += 1
        took_s = time.process_time() - begun
        figures["slowest_ms"] = max(figures["slowest_ms"], round(took_s * 1000))
        assert took_s < MOST_S

    fuzz()
