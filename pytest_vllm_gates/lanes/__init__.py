"""Lanes: describe, compare, freeze; the lanes and overlays that ship."""
