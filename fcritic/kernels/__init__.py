"""Pallas kernels and memory layouts for GPUs."""
