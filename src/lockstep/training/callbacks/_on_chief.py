"""Callbacks that run on the chief only."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import keras

from lockstep.errors import ArgumentError


class OnChief(keras.callbacks.Callback):
    """Runs a callback on the chief only; in a program of one process, as it is.

    For callbacks that write files or report elsewhere: each worker calls each callback, and they would all write to one
    place. The callback gets the model, the parameters and the logs that it would get without this, which are the same
    on all workers; `BackupAndRestore` keeps its state as that of any other (`get_state()`, `set_state(state)`).

    It must not change the model, nor call `evaluate`, `predict` or anything else that all workers have to call: the
    others do neither, which is an error that says so. It may set `model.stop_training`, which stops all workers at the
    end of the epoch.

    Keras' `ModelCheckpoint`, `CSVLogger`, `TensorBoard`, `OrbaxCheckpoint` and `RemoteMonitor`, and those of
    `lockstep.training.callbacks`, know the chief by themselves.

    Args:
        callback: A `keras.callbacks.Callback`.

    Raises:
        ArgumentError: If it is none, or is one in which all workers take part, such as `BackupAndRestore`.

    Examples:
        >>> model.fit(x, y, callbacks=[OnChief(keras.callbacks.LambdaCallback(on_epoch_end=write_to_database))])
    """

    def __init__(self, callback: keras.callbacks.Callback) -> None:
        super().__init__()
        if not isinstance(callback, keras.callbacks.Callback):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"OnChief takes one of Keras' callbacks. Received: {callback!r:.80}. A function becomes one by "
                "keras.callbacks.LambdaCallback(on_epoch_end=function)."
            )
        if hasattr(callback, "attach_run"):
            raise ArgumentError(
                f"All workers take part in {type(callback).__name__}, of which only the chief writes anyway. Received: "
                f"OnChief({type(callback).__name__}(...)). Give the callback itself."
            )
        self.callback_on_chief = callback
        self.async_safe = getattr(callback, "async_safe", False)

    # For models of plain Keras. `fit` of a strategy's model takes the callback out on the chief, and leaves it out on
    # the other workers.

    def set_params(self, params: Any) -> None:
        """Hands the parameters on."""
        super().set_params(params)
        self.callback_on_chief.set_params(params)

    def set_model(self, model: Any) -> None:
        """Hands the model on; on the chief, where a callback may write already now."""
        super().set_model(model)
        if jax.process_index() == 0:
            self.callback_on_chief.set_model(model)


def _forward(name: str) -> Callable[..., None]:
    """Returns a method of `OnChief` that calls the callback's, on the chief."""

    # Without the base method's attributes: by one of them Keras knows a method that does nothing, and it calls the ends
    # of batches from another thread, late, where it finds no other.
    @functools.wraps(getattr(keras.callbacks.Callback, name), updated=())
    def method(self: OnChief, *args: Any, **kwargs: Any) -> None:
        if jax.process_index() == 0:
            getattr(self.callback_on_chief, name)(*args, **kwargs)

    method.__doc__ = "Hands the call on."
    return method


# The base class has each of these methods, which do nothing: `__getattr__` would never be asked for one.
for _name in (
    *(f"on_epoch_{end}" for end in ("begin", "end")),
    *(f"on_{kind}_batch_{end}" for kind in ("train", "test", "predict") for end in ("begin", "end")),
    *(f"on_{kind}_{end}" for kind in ("train", "test", "predict") for end in ("begin", "end")),
):
    setattr(OnChief, _name, _forward(_name))
