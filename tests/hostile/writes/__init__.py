"""Disks that are full, broken or read-only, and output that nobody reads."""
