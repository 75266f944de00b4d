"""The options of a run: every option once, its names, its values and the parsed record."""
