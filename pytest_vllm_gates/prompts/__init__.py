"""Prompts: the chat template, the reference rendering, the token diff."""
