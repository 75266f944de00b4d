"""The tests of `drive` that ask a real server share the session's."""

from e2e.fixtures import gates_progress, shared

__all__ = ["gates_progress", "shared"]
