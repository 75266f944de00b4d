"""Checks of the answers to the matrix, one topic a module."""
