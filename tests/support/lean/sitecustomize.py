"""Has short processes collect less garbage; see README.md. Python imports this module when it starts."""

from __future__ import annotations

import atexit
import gc

# After so many new objects, not 700: keras and jax make 600,000 that stay.
gc.set_threshold(100_000, 50, 1_000)
# As a process ends, Python looks through all objects for cycles: what it began with, none of them garbage.
atexit.register(gc.freeze)
