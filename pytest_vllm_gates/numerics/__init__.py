"""The numerics gate: log-probabilities against the reference's."""
