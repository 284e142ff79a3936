"""The order in which `fit` reads arrays: of `tf.random`, so that numpy's global generator stays where it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

from lockstep.compat.tensorflow._ops.random import order_of_data
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._patches._patch import replaces


@replaces(ArrayDataAdapter, "__init__")
def _note_program(original: Callable[..., None], self: Any, *args: Argument, **kwargs: Argument) -> None:
    original(self, *args, **kwargs)
    if self._shuffle:
        # Before a pass: its position holds the generator's state at the beginning.
        order_of_data()


@replaces(ArrayDataAdapter, "_get_iterator")
def _iterate(original: Callable[..., Iterator[Any]], self: Any, *args: Argument, **kwargs: Argument) -> Iterator[Any]:
    batches = original(self, *args, **kwargs)
    # Keras shuffles all at the first batch, or each batch when it is read.
    draws = self._size if self._shuffle == "batch" else 1 if self._shuffle else 0
    for _ in range(draws):
        # Keras draws from numpy's global generator, whose numbers are the program's in TensorFlow.
        programs_own = np.random.get_state()
        order = order_of_data()
        np.random.set_state(order.get_state())
        try:
            batch = next(batches, None)
        finally:
            order.set_state(np.random.get_state())
            np.random.set_state(programs_own)
        if batch is None:
            return
        yield batch
    yield from batches
