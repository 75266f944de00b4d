"""Two lanes in one run: the gates on the other one, and the throughput of both in turns."""
