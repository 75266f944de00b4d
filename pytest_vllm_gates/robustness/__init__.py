"""The robustness gate: rare and wrong requests, and what they must not end."""
