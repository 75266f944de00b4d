"""Fixtures of the end-to-end tests."""

from e2e.fixtures import gates_progress, shared

__all__ = ["gates_progress", "shared"]
