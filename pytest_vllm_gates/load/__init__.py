"""The load gate: traces, arrivals, latency, and the driver."""
