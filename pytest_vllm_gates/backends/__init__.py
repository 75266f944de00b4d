"""Which attention backends a platform offers: which boot, answer rightly, and how fast."""
