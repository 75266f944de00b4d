"""The lifecycle gate: a second boot, and a server that is stopped while it answers."""
