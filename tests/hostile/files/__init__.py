"""Every loader of files from outside, a corpus of bad files for each, and fuzzing of all.

A finding adds its file to `corpus/<loader>/`, or to `made.py` where it is large or odd.
"""
