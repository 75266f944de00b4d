"""Where two greedy answers part, in tokens."""
