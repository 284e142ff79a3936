"""Shares of a global batch, and the random numbers of each."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from lockstep._types import Batch

# Replicas must not draw the same dropout masks: as `lockstep._engine.step.aggregation` shifts seeds.
_SEED_STRIDE = 0x9E3779B1


def share_of(batch: Batch, share: int, shares: int) -> tuple[Batch | None, float]:
    """Returns a share of a global batch, and how much it counts.

    As replicas divide a batch: in equal parts; one that they cannot divide is computed whole, by the first.
    """
    rows = next((a.shape[0] for a in jax.tree.leaves(batch) if np.ndim(a)), 0)
    if shares == 1:
        return batch, 1.0
    if not rows or rows % shares:
        return (batch, 1.0) if share == 0 else (None, 0.0)
    each = rows // shares
    part = slice(share * each, (share + 1) * each)
    return jax.tree.map(lambda a: a[part] if np.ndim(a) else a, batch), 1.0 / shares


def seeds_for(
    initial: Sequence[np.ndarray], draws: Sequence[np.ndarray], ticket: int, share: int, is_whole: bool
) -> list[np.ndarray]:
    """Returns the states of random generators for a ticket: as if one device had made all steps before it.

    Args:
        initial: The states at the beginning of training.
        draws: By how much a step moves each.
        ticket: How many steps came before.
        share: Which share of the batch; each draws numbers of its own.
        is_whole: Whether it is the whole batch.
    """
    found: list[np.ndarray] = []
    for before, step in zip(initial, draws, strict=True):
        with np.errstate(over="ignore"):
            state = (before + step * np.asarray(ticket, step.dtype)).astype(before.dtype)
            if not is_whole:
                state[0] += np.asarray((share * _SEED_STRIDE) & 0xFFFFFFFF, np.uint32).astype(before.dtype)
        found.append(state)
    return found
