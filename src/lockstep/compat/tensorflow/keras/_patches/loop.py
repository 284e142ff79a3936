"""Models without a strategy run on lockstep's loop, as on one device: `fit`, `evaluate`, `predict` and the others.

One loop and its lowerings for all models of a program: a step of the tutorial's network for pictures of 180x180 took
0.39 s in Keras' loop on two cores, and 0.15 s in TensorFlow.
"""

from __future__ import annotations

import functools

from lockstep.compat.tensorflow.keras._patches._patch import is_ours
from lockstep.distribute.internal import run_without_strategy


@functools.cache
def run_on_our_loop() -> None:
    """Puts lockstep's loop behind the methods of models that programs of this package make."""
    run_without_strategy(is_ours)
