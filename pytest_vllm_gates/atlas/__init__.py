"""An atlas of releases: which check fails in which release of vLLM, since when and until when."""
