"""Checks of a lane on a machine before anything boots."""
