"""Servers that are left up for the next run."""
