"""Servers that stay up for the next run."""
