"""The command line: starts the tasks of a cluster on this machine, and ends them together.

Knows the cluster and the errors only; it imports neither jax nor keras, so that it starts at once.
"""

from __future__ import annotations
