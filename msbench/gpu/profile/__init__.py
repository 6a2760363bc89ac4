"""Nsight Compute, and what its counters say."""
