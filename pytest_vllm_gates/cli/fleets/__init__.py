"""The commands for a fleet: `matrix` plans it, `shard` runs a part, `merge` makes one verdict."""
