"""The gates of many families, lanes and features on many machines, and one verdict over all.

`plan` splits the work into shards, `engines/` writes them in the forms of CI systems and clusters,
`merged` makes one verdict from the shards' reports.
"""
