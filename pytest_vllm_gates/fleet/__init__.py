"""The gates of many families, lanes and features on many machines, and one verdict over all.

`plan` cuts the work into shards, `engines/` writes them in the forms of CI systems and clusters,
`merged` makes one verdict of what the shards left.
"""
