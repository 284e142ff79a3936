"""Runs TensorFlow's own Python tests, from a given directory, on lockstep: `python -m tests.conformance DIR`."""
