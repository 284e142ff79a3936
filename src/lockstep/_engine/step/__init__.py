"""The step program: `(state, batch) -> (outputs, state)`, compiled for the replicas in one of two views. Private.

The only place that knows partitioning, collectives, placement and donation.
"""

from __future__ import annotations
