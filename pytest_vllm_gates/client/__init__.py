"""How everything is sent to a server, and what comes back."""
