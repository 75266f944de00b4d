"""How long a server takes from the start of its process to its first right answer, by phase."""
