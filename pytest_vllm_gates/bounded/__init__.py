"""Reads what comes from outside: files, within limits; TOML and JSON, strictly.

A file's author may be hostile. `read` opens it and checks its kind and size; `syntax` checks
depth, numbers and keys before a parser runs; `characters` finds what a person would not see;
`patterns` runs regular expressions for a bounded time.
"""
