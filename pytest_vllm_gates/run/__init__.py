"""One run: what was asked, what it serves with, what it boots, and what came of it so far."""
