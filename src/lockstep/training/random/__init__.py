"""Random numbers in functions that run once per replica: some of its own, or its part of those of the whole batch.

Functions written for the whole batch, as in the global view of `lockstep.training.Program`, need neither: there
`jax.random` draws what one device would.
"""

from __future__ import annotations

from lockstep.training.random._replicas import for_batch as for_batch
from lockstep.training.random._replicas import replica_key as replica_key
from lockstep.training.random._replicas import rows_of_batch as rows_of_batch

__all__ = ["for_batch", "replica_key", "rows_of_batch"]
