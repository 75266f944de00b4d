"""All-reduce over the ranks of a lane, before a server is booted."""
