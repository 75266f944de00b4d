"""Vectors of texts: requested from a server, compared with one another and with transformers."""
