"""Checkpoints: find them, read their files, fingerprint them."""
