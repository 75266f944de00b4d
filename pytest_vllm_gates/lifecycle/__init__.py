"""The lifecycle gate: a second boot, and a server that is told to stop while it answers."""
