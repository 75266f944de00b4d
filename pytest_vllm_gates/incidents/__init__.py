"""Incidents: the record of a failed test, and its replay."""
