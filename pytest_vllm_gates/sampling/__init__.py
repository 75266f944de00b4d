"""The sampling gate: compares the sampler's draws with the documented effect of its parameters."""
