"""Models without a strategy run on lockstep's loop, as on one device: `fit`, `evaluate`, `predict` and the others.

One loop and its lowerings for all models of a program: a step of the tutorial's network for pictures of 180x180 took
0.39 s in Keras' loop on two cores, and 0.15 s in TensorFlow.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import keras

from lockstep._types import Model
from lockstep.compat.tensorflow.keras._patches._patch import is_ours

if TYPE_CHECKING:
    from lockstep._engine.step.replicas import Replicas


@functools.cache
def run_on_our_loop() -> None:
    """Puts lockstep's loop behind the methods of models that programs of this package make."""
    # Imported here: a program that trains no model does without the engine.
    from lockstep._engine.keras import binding, ownership

    binding.install()
    ownership.place_models(_place)


def _place(model: Model) -> Replicas | None:
    """Returns the default device as one replica, unless the model is to train otherwise."""
    from lockstep._engine.runtime import local_training
    from lockstep.distribute import get_strategy, has_strategy

    # In a cluster, and in a scope that the model was not made in, Keras trains it, with a warning.
    if not is_ours(model) or has_strategy() or local_training.has_joined() or keras.distribution.distribution():
        return None
    return get_strategy()._demanded_replicas()  # pyright: ignore[reportPrivateUsage]
