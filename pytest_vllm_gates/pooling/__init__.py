"""Vectors of texts: asked of a server, held against one another and against transformers."""
