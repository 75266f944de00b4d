"""Reads files from outside within limits, and TOML and JSON strictly.

A file's author may be hostile. `read` opens it and checks its kind and size; `syntax` checks
depth, numbers and keys before a parser runs; `characters` finds invisible characters; `patterns`
runs regular expressions with a time limit.
"""
