"""Names of `tf.keras` itself."""

from __future__ import annotations

from lockstep.compat.tensorflow.keras._saves import latest_checkpoint as latest_checkpoint

__all__ = ["latest_checkpoint"]
