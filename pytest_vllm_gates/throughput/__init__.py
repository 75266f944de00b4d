"""Throughput: blocks, baselines, statistics, and the decision."""
