"""Models that belong to no strategy, and run on lockstep's loop all the same: as one replica on the default device."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from lockstep._types import Model
from lockstep.distribute import _context

if TYPE_CHECKING:
    from lockstep._engine.step.replicas import Replicas


def run_without_strategy(is_meant: Callable[[Model], bool]) -> None:
    """Has models that belong to no strategy run on lockstep's loop.

    In a cluster that this process has joined, in a scope that a model was not made in, under a distribution of Keras',
    and in threads beside the main one, models stay on Keras' own loop.

    Args:
        is_meant: Returns whether a model runs so; asked when it is first trained, evaluated or asked for predictions.
    """
    # Imported here: who trains no model does without the engine.
    from lockstep._engine.keras import binding, ownership

    def place(model: Model) -> Replicas | None:
        return _default_replicas() if is_meant(model) else None

    binding.install()
    ownership.place_models(place)


def _default_replicas() -> Replicas | None:
    import keras

    from lockstep._engine.runtime import local_training

    # The loop keeps one account of where the main thread is, and has SIGTERM end what the main thread trains.
    if threading.current_thread() is not threading.main_thread():
        return None
    if _context.has_strategy() or local_training.has_joined() or keras.distribution.distribution() is not None:
        return None
    return _context.default()._demanded_replicas()  # pyright: ignore[reportPrivateUsage]
