"""Runs TensorFlow's own Python tests, from a directory that is given, on lockstep: `python -m tests.conformance DIR`."""
