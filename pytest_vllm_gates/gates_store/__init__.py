"""Goldens and baselines from elsewhere: a folder, an archive, or the URL of one."""
