"""The sampling gate: what the sampler draws, beside what its parameters are documented to do."""
