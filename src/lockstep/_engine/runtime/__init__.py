"""Turns a cluster into a joined process: arrival, handshake, agreement, liveness, ordered exit.

The only place that touches jax.distributed and its coordination service. Private.
"""

from __future__ import annotations
