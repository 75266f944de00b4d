"""An atlas of releases: the checks that fail in releases of vLLM, since when and until when."""
