"""The time from the start of a server's process to its first right answer, by phase."""
