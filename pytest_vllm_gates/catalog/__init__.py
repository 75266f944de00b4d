"""Typed records of the TOML files: families, lanes, conversations, plans, waivers."""
