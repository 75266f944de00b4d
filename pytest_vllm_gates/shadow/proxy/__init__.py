"""Work that clients wait for: the proxy before the stable server, in a process by itself."""
