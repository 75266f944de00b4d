"""Finds the first token at which two greedy answers differ."""
