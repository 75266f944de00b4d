"""The load generator: a socket client, and locust for more processes."""
