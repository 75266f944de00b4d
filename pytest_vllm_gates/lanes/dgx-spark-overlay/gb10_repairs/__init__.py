"""Repairs of released packages: one file each, armed by `sitecustomize`, idle where not needed."""
