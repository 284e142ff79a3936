"""The threads and processes of a `keras.utils.PyDataset`, so that what they read does not depend on time.

Keras' enqueuer draws its order on a thread of its own. At the end of a pass it keeps what was read ahead for the next
one. So the order depends on what else draws random numbers meanwhile, and on how far it has read. Here a pass goes on
once the order is drawn, and ends once as much is read ahead as there is room for. The orders are those of Keras where
it has the time that this takes.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator
from typing import Any

from lockstep.errors import InputError

_SECONDS = 600.0
_POLL_SECONDS = 0.001


class Enqueued:
    """Passes of an adapter whose enqueuer reads ahead.

    Args:
        adapter: A `PyDatasetAdapter` of a dataset with workers, and with an end.
    """

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self._enqueuer = adapter.enqueuer
        self._left_over = self._read = 0

    def begin(self) -> None:
        """Starts the enqueuer, and waits until it has drawn the order of the pass."""
        enqueuer = self._enqueuer
        self._left_over, self._read = enqueuer.ready_queue.qsize(), 0
        if enqueuer.running:
            return
        enqueuer.indices = None
        enqueuer.start()
        self._wait(lambda: enqueuer.indices is not None)

    def counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yields the batches of a pass."""
        for batch in batches:
            self._read += 1
            yield batch
            if self._read == self._adapter.num_batches:
                self.fill()  # Keras stops the enqueuer next, and keeps what it has read.

    def fill(self) -> None:
        """Waits until as much is read ahead as there is room for: a full queue, and one batch in hand."""
        count, enqueuer = self._adapter.num_batches, self._enqueuer
        ahead = max(0, self._read - self._left_over) + enqueuer.future_queue.maxsize + 1
        self._wait(lambda: operator.length_hint(enqueuer.indices, count) <= max(0, count - ahead))

    def drop(self) -> None:
        """Drops what is left of a pass that ended early: how much that is depends on time."""
        if self._read < self._adapter.num_batches:
            while not self._enqueuer.ready_queue.empty():
                self._enqueuer.ready_queue.get_nowait()

    def _wait(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _SECONDS
        while not is_done() and self._enqueuer.run_thread is not None and self._enqueuer.run_thread.is_alive():
            if time.monotonic() > deadline:
                raise InputError(
                    f"A PyDataset's workers must start within {_SECONDS:g} s. Received: "
                    f"{type(self._adapter.py_dataset).__name__}, which has not begun to read. Look at what its "
                    "processes wait for, or use workers=1."
                )
            time.sleep(_POLL_SECONDS)


def enqueued(adapter: Any) -> Enqueued | None:
    """Returns the passes of an adapter, or `None` if it has no workers, or no end."""
    if getattr(adapter, "enqueuer", None) is None or adapter.num_batches is None:
        return None
    return Enqueued(adapter)
