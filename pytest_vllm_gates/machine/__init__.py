"""The machine: GPUs, CPU, memory, container."""
