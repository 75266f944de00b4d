"""Conversations: the requests of the matrix, and the TOML files that ship."""
