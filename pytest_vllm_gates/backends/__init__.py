"""Tries a platform's attention backends: which ones boot, answer correctly, and how fast."""
