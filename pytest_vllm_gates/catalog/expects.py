"""The machine that a lane's bundle was made for."""

from __future__ import annotations

from pytest_vllm_gates.catalog import toml


class Expects(toml.Record):
    """The machine that the bundle was made for; compared with this machine before a boot."""

    driver: str | None = None
    cuda: str | None = None
    gpu: str | None = None
