"""Secrets and prompts: what is hidden wherever something is written."""
