"""Values of scheduled functions: results that are not there yet, and values that each worker has one of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._nest import map_structure

_POLL_SECONDS = 1.0


class RemoteValue:
    """The result of a scheduled function, which may not be there yet.

    Source: tf.distribute.experimental.coordinator.RemoteValue.
    """

    def __init__(self, name: str, check: Callable[[], None]) -> None:
        self._name = name
        self._check = check
        self._is_set = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def get(self) -> Any:
        """Waits for the result, and returns it: arrays of jax in the structure that the function returns.

        Raises:
            CancelledError: If a function before it has failed.
            LockstepError: If it has failed itself.

        Source: tf.distribute.experimental.coordinator.RemoteValue.get.
        """
        return map_structure(_as_jax, self._wait())

    def fetch(self) -> Any:
        """Waits for the result, and returns it: arrays of numpy in the structure that the function returns.

        Raises:
            CancelledError: If a function before it has failed.
            LockstepError: If it has failed itself.

        Source: tf.distribute.experimental.coordinator.RemoteValue.fetch.
        """
        return self._wait()

    def __repr__(self) -> str:
        """Returns the function, and whether its result is there."""
        state = "waiting" if not self._is_set.is_set() else "failed" if self._error is not None else "done"
        return f"<RemoteValue of {self._name}: {state}>"

    def _wait(self) -> Any:
        while not self._is_set.wait(_POLL_SECONDS):
            self._check()
        if self._error is not None:
            raise self._error
        return self._value

    def accept(self, value: Any) -> None:
        """Takes the result; for the coordinator."""
        self._value = value
        self._is_set.set()

    def refuse(self, error: BaseException) -> None:
        """Takes the error that ends the function; for the coordinator."""
        self._error = error
        self._is_set.set()


class PerWorkerValues:
    """Values of which each worker has one: a scheduled function gets that of the worker that computes it.

    Args:
        values: In the order of workers.

    Source: tf.distribute.experimental.coordinator.PerWorkerValues.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = tuple(values)

    def __repr__(self) -> str:
        """Returns the values."""
        return f"PerWorkerValues({list(self._values)!r:.200})"


def of_worker(values: PerWorkerValues, worker: int) -> Any:
    """Returns the value of a worker."""
    return values._values[worker]  # pyright: ignore[reportPrivateUsage]


def _as_jax(leaf: Any) -> Any:
    return jnp.asarray(leaf) if isinstance(leaf, (np.ndarray, np.generic, jax.Array)) else leaf
