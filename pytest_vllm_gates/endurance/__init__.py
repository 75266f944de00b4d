"""The endurance gate: after hours of requests, a server answers as it did at first."""
