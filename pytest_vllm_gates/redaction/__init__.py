"""Redaction of secrets and prompts in everything that is written."""
