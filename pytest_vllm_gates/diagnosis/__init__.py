"""Name the failure that a log shows."""
