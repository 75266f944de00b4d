"""What comes from outside is hostile here: servers, files, templates, full disks.

One rule for all: no traceback, no hang over 30 s, no more than 600 MB, nothing wrong accepted
silently.
"""
