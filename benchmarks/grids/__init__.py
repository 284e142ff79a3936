"""The shapes over which `benchmarks/lowerings.py` compares lockstep's lowerings with XLA's own."""

from __future__ import annotations
