"""Typed records of what is given: family, lane, checkpoint, conversation, machine, outcome."""
