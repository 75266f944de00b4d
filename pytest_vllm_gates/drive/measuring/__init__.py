"""Loads a server and keeps what the kernel saw: nothing is parsed before the load is over."""
