"""Sends requests to a server, and reads its answers."""
