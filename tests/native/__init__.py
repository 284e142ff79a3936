"""Kernels that are compiled on the machine."""
