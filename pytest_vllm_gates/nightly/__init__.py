"""vLLM's wheels by commit: the commits between two versions, and the wheel of each."""
