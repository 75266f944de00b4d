"""What a run is asked for: every option once, its names, its values and the parsed record."""
