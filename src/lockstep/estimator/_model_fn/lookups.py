"""Lookups of rows in a model_fn that is traced: which ids a batch needs, and windows in place of whole variables.

A variable whose rows are looked up and that is not read otherwise is a *table* to parameter servers: a task has only
the rows of a batch, as a *window*, and ids are the rows' places in it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol

import jax.numpy as jnp

from lockstep._types import Array, Variable
from lockstep.errors import UnsupportedError

Take = Callable[[Array, Array], Array]


class Watch(Protocol):
    """Handles lookups and reads of a model_fn's variables.

    Attributes:
        sizes: By the key of a variable that has another number of rows while it is watched: that number.
        shard: The number of the shard that the model_fn is traced for.
    """

    sizes: Mapping[str, int]
    shard: int

    def lookup(self, key: str, number: int, value: Array, ids: Array, take: Take) -> Array:
        """Returns the rows of a variable; `number` counts its lookups in a call of the model_fn."""
        ...

    def note_read(self, key: str) -> None:
        """Handles a read of a variable that is no lookup."""
        ...


class RecordedLookups:
    """Records what a model_fn that is traced with whole variables looks up, for one shard.

    Attributes:
        ids: By the key of a variable: the ids of each of its lookups, in their order.
        whole: The keys of variables that are read otherwise.
    """

    sizes: Mapping[str, int] = {}
    shard = 0

    def __init__(self) -> None:
        self.ids: dict[str, list[Array]] = {}
        self.whole: set[str] = set()

    def lookup(self, key: str, number: int, value: Array, ids: Array, take: Take) -> Array:
        """Notes the ids, and looks them up."""
        own = self.ids.setdefault(key, [])
        # The model_fn is called several times where it asks for gradients; each time it looks up the same.
        if number == len(own):
            own.append(ids)
        return take(value, ids)

    def note_read(self, key: str) -> None:
        """Notes a read."""
        self.whole.add(key)


class Windows:
    """Has lookups read windows.

    Args:
        tables: The keys of the tables.
        sizes: By key of a table, or a slot of one, how many rows its window has.
        positions: By key of a table: in place of the ids of each lookup, their rows in the window. Without, the first
            row stands for all, where nothing but shapes matters.
        shards: For how many shards the model_fn is traced, whose lookups follow each other in `positions`.
    """

    def __init__(
        self,
        tables: Sequence[str],
        sizes: Mapping[str, int],
        positions: Mapping[str, Sequence[Array]] | None = None,
        shards: int = 1,
    ) -> None:
        self.sizes = sizes
        self.shard = 0
        self._tables = frozenset(tables)
        self._positions = positions
        self._shards = shards

    def lookup(self, key: str, number: int, value: Array, ids: Array, take: Take) -> Array:
        """Looks up rows of a window."""
        if key not in self._tables:
            return take(value, ids)
        if self._positions is None:
            return take(value, jnp.zeros(ids.shape, jnp.int32))
        own = self._positions[key]
        rows = own[self.shard * (len(own) // self._shards) + number]
        assert rows.shape == ids.shape, (rows.shape, ids.shape)
        return take(value, rows)

    def note_read(self, key: str) -> None:
        """Refuses a read of a table: it was none in the batch that servers were opened with."""
        if key in self._tables:
            raise UnsupportedError(
                "A model_fn must use a table in the same way for each batch. Received: one that looks up rows of "
                f"{key!r} by ids, and uses the whole of it in another batch. Look rows up alone."
            )


class _Watching(threading.local):
    """Holds what watches on this thread, and variables whose shape was changed for it."""

    watch: Watch | None = None
    changed: list[tuple[Any, tuple[int, ...]]]


_watching = _Watching()


def current_watch() -> Watch | None:
    """Returns what watches the model_fn that is being traced on this thread."""
    return _watching.watch


@contextlib.contextmanager
def active(watch: Watch) -> Generator[None]:
    """Has lookups and reads of model_fns on this thread go to `watch`."""
    before = _watching.watch
    _watching.watch, _watching.changed = watch, []
    try:
        yield
    finally:
        # Layers that are kept outside have been resized once for each call of the model_fn.
        for variable, shape in reversed(_watching.changed):
            variable._shape = shape
        _watching.watch = before


@contextlib.contextmanager
def of_shard(number: int) -> Generator[None]:
    """Has lookups within the context be those of a shard."""
    watch = _watching.watch
    if watch is None:
        yield
        return
    before, watch.shard = watch.shard, number
    try:
        yield
    finally:
        watch.shard = before


def resize(variable: Variable, rows: int) -> None:
    """Gives a variable another number of rows while it is watched, since rules compare shapes."""
    kept: Any = variable
    _watching.changed.append((kept, tuple(kept.shape)))
    kept._shape = (rows, *kept.shape[1:])
