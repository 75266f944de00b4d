"""What a run comes to, and what is said at its end."""
