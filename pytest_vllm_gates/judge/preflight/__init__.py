"""Checks that are not moved yet."""
