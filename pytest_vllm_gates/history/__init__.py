"""Verdicts and figures of earlier runs."""
