"""Processes: start them, guard them, end them."""
