"""A fleet's plan in the forms of CI systems and clusters: one file an engine.

Each has `files(plan, form)`, which returns the texts by their file's name. In all of them a shard
is `vllm-gates shard`, and the last step is `vllm-gates merge`.
"""
