"""Live traffic mirrored to a canary and judged pair by pair, with always-valid statistics."""
