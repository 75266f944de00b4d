"""Typed records of what is declared in TOML: families, lanes, conversations, plans, waivers."""
