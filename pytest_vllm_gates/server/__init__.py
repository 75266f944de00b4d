"""Boot a server, wait until it is ready, watch it, read what it reports."""
