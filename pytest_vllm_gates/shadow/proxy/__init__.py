"""What clients wait for: the proxy before the stable server, in a process with nothing else."""
