"""A server's rows of a table: what has been touched lies together, in the order in which it was first touched.

An index of 4 bytes a row leads there, on pages that the system gives when they are written to: a table of 50 million
rows costs what is touched of it, and so does a cut.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from lockstep._engine.runtime.buffers import Scratch
from lockstep._engine.servers.compiled import Programs, bucket, coarse_bucket, load, pad_to_bucket
from lockstep._engine.servers.layout import Shard, Variable, dtype_of
from lockstep._types import Array
from lockstep.checkpoint.internal import ArrayLayout, piece_rows
from lockstep.errors import ArgumentError

# The steps are counted from 0; a row's count is below this in int32 after 20 years of 3 steps a second.
_STEPS = np.int32
# Reading a range makes at most so many rows at a time that have not been touched.
_READ_ROWS = 1 << 16


def reserve(count: int, row: Sequence[int], dtype: np.dtype[np.generic], is_filled_in_order: bool = True) -> Array:
    """Returns an array of zeros whose memory the system gives when it is written to, page by page.

    Args:
        count: The number of rows.
        row: The shape of a row.
        dtype: The type.
        is_filled_in_order: Whether rows are written to from the first one on, so that pages may be large: rows that are
            looked up lie anywhere, and a page of 4 KiB holds 64 of 16 floats.
    """
    size = max(int(np.prod([count, *row])) * dtype.itemsize, 1)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    memory = mmap.mmap(-1, size, flags=flags) if hasattr(mmap, "MAP_PRIVATE") else mmap.mmap(-1, size)
    if is_filled_in_order and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # A kernel without them.
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype, int(np.prod([count, *row]))).reshape(count, *row)


class Table:
    """The rows of a table on one server, and their slots."""

    def __init__(
        self, variable: Variable, shards: Sequence[Shard], programs: Programs, initializer: bytes | None
    ) -> None:
        self.variable = variable
        self.key = programs.rule.program_of[variable.name]
        self.program = programs.rule.programs[self.key]
        self.shards = tuple(shards)
        self._programs = programs
        self._initialize = load(initializer) if initializer else None
        self._starts = np.asarray([s.start for s in shards], np.int64)
        sizes = np.asarray([s.stop - s.start for s in shards], np.int64)
        self._offsets = np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.int64)
        self.length = int(sizes.sum())
        self.begin = programs.rates[self.key].stop
        row = variable.row_shape
        dtypes = [dtype_of(variable.dtype), *(dtype_of(s.dtype) for s in self.program.slots)]
        self._scratch = Scratch()
        self.count = 0
        self._index = reserve(self.length, (), np.dtype(np.int32), is_filled_in_order=False)
        self.ids = reserve(self.length, (), np.dtype(np.int64))
        self.arrays = [reserve(self.length, row, d) for d in dtypes]
        moves = self.length if self.program.movement else 0
        self.pushed = reserve(moves, (), np.dtype(_STEPS))
        self.at = reserve(moves, (), np.dtype(_STEPS))

    @property
    def names(self) -> list[str]:
        """The names of value and slots."""
        return [self.variable.name, *(f"{self.variable.name}/{s.name}" for s in self.program.slots)]

    def local(self, ids: Array) -> Array:
        """Returns the positions among the server's rows.

        Raises:
            ArgumentError: If an id is of another server.
        """
        if len(self.shards) == 1:
            start, stop = self.shards[0].start, self.shards[0].stop
            if not ids.size or (int(ids.min()) >= start and int(ids.max()) < stop):
                return ids - start if start else ids
            wrong = (ids < start) | (ids >= stop)
        else:
            which = np.searchsorted(self._starts, ids, side="right") - 1
            local = ids - self._starts[which] + self._offsets[which]
            wrong = (which < 0) | (ids >= np.asarray([s.stop for s in self.shards])[which])
            if not wrong.any():
                return local
        raise ArgumentError(
            f"Servers are asked for their own rows of {self.variable.name!r}: "
            f"{[(s.start, s.stop) for s in self.shards]}"
            f". Received: {int(ids[wrong][0])}. Start all tasks with the same program; their layouts differ."
        )

    def touch(self, ids: Array) -> Array:
        """Returns where rows lie; those that are touched for the first time get their initial values."""
        local = self.local(ids)
        places = self._index.take(local)
        if not places.all():
            self._make(np.unique(ids[places == 0]))
            places = self._index.take(local)
        return places - 1

    def _make(self, ids: Array) -> None:
        places = np.arange(self.count, self.count + ids.size)
        self.arrays[0][places] = self._initial(ids)
        for array, slot in zip(self.arrays[1:], self.program.slots, strict=True):
            if slot.initial:
                array[places] = slot.initial
        if self.program.movement:
            now = self._programs.rates[self.key].stop
            self.pushed[places] = self.at[places] = now if self.program.movement.rests_when_new else self.begin
        self.ids[places] = ids
        self._index[self.local(ids)] = places + 1
        self.count += ids.size

    def _initial(self, ids: Array) -> Array:
        if self._initialize is None:
            return np.zeros((ids.size, *self.variable.row_shape), self.arrays[0].dtype)
        size = coarse_bucket(ids.size)
        return np.asarray(self._initialize(pad_to_bucket(ids.astype(np.int64), size)))[: ids.size]

    def pull(self, ids: Array) -> Array:
        """Returns rows as they are now, of shape (n, *row)."""
        places = self.touch(ids)
        self._catch_up(places)
        return self.arrays[0].take(places, axis=0)

    def begin_push(
        self, places: Array, gradients: Array, rates: Sequence[Array], now: int
    ) -> Sequence[jax.Array | Array]:
        """Begins to update rows in step `now`, which the rates are of; returns what `end_push` takes.

        Args:
            places: Where they lie, as `touch` has said; different from each other.
            gradients: Of shape (n, *row).
            rates: What the clock gives.
            now: The step.
        """
        count = places.size
        if not count:
            return []
        self._catch_up(places, now)
        size = bucket(count)
        given = []
        for i, array in enumerate(self.arrays):
            rows = self._scratch.array(i, (size, *array.shape[1:]), array.dtype)
            rows[count:] = 0
            np.take(array, places, axis=0, out=rows[:count], mode="clip")
            if i and self.program.movement:
                self._decay(i, rows[:count], places, now)
            given.append(rows)
        gradient = self._scratch.array("gradient", (size, *self.variable.row_shape), self.arrays[0].dtype)
        gradient[:count], gradient[count:] = gradients, 0
        return self._programs.begin_update(self.key, rates, [*given, gradient])

    def end_push(self, places: Array, results: Sequence[jax.Array | Array], now: int) -> None:
        """Stores the rows that an update in step `now` comes to."""
        if not places.size:
            return
        for array, new in zip(self.arrays, results, strict=True):
            _put_rows(array, places, np.asarray(new).reshape(-1, *array.shape[1:])[: places.size])
        if self.program.movement:
            self.pushed[places] = self.at[places] = now + 1

    def _catch_up(self, places: Array, now: int | None = None) -> None:
        """Computes the steps without gradient that these rows are behind, up to where they settle."""
        if self.program.movement is None:
            return
        now = self._programs.rates[self.key].stop if now is None else now
        at = self.at.take(places).astype(np.int64)
        steps = self._settled_by(self.pushed.take(places), now) - at
        behind = np.flatnonzero(steps > 0)
        if not behind.size:
            return
        # A row that is there twice is computed twice, to the same values.
        behind = behind[np.argsort(steps[behind], kind="stable")]
        places, at, steps = places[behind], at[behind], steps[behind]
        rows = [a.take(places, axis=0) for a in self.arrays]
        for array, values in zip(self.arrays, self._programs.replay(self.key, at, steps, rows), strict=True):
            _put_rows(array, places, values)
        self.at[places] = at + steps

    def _settled_by(self, pushed: Array | int, now: int) -> Array:
        """Returns up to which step rows are computed step by step, whose last gradient came before step `pushed`."""
        movement = self.program.movement
        if movement is None or movement.settles is None:
            return np.full(np.shape(pushed), now, np.int64)
        start = np.asarray(pushed, np.int64)
        if movement.follows_rate:
            start = np.maximum(start, self._programs.rates[self.key].changed)
        return np.minimum(start + movement.settles, now)

    def _decay(self, which: int, rows: Array, places: Array, now: int) -> None:
        """Has a slot of settled rows be what it is now.

        It is computed from where the row settled, each time: not step by step, so that it does not matter for the
        bits who has looked at the row in the meantime.
        """
        movement = self.program.movement
        if movement is None or movement.settles is None or movement.decays[which - 1] == 1.0:
            return
        quiet = now - self.at.take(places).astype(np.int64)
        settled = np.flatnonzero(quiet > 0)
        if settled.size:
            factors = (movement.decays[which - 1] ** quiet[settled]).astype(rows.dtype)
            rows[settled] *= factors.reshape(-1, *[1] * (rows.ndim - 1))

    def read(self, which: int, start: int, stop: int) -> Array:
        """Returns rows of value (0) or a slot (1, ...) as they are now; makes nothing that has not been touched.

        Args:
            which: The array.
            start: The first row of the whole table.
            stop: The one after the last.
        """
        parts = [self._read(which, np.arange(a, min(a + _READ_ROWS, stop))) for a in range(start, stop, _READ_ROWS)]
        empty = np.empty((0, *self.variable.row_shape), self.arrays[which].dtype)
        return np.concatenate(parts) if parts else empty

    def _read(self, which: int, ids: Array) -> Array:
        places = self._index.take(self.local(ids)).astype(np.int64) - 1
        is_new = places < 0
        result = np.empty((ids.size, *self.variable.row_shape), self.arrays[which].dtype)
        held = places[~is_new]
        self._catch_up(held)
        rows = self.arrays[which].take(held, axis=0)
        if which and self.program.movement:
            self._decay(which, rows, held, self._programs.rates[self.key].stop)
        result[~is_new] = rows
        if is_new.any():
            result[is_new] = self._read_new(which, ids[is_new])
        return result

    def _read_new(self, which: int, ids: Array) -> Array:
        """Returns rows that nobody has touched."""
        movement = self.program.movement
        arrays = [self._initial(ids)]
        arrays += [
            np.full((ids.size, *self.variable.row_shape), s.initial, dtype_of(s.dtype)) for s in self.program.slots
        ]
        if movement and not movement.rests_when_new:
            steps = int(self._settled_by(self.begin, self._programs.rates[self.key].stop)) - self.begin
            if steps:
                counts = np.full(ids.size, steps, np.int64)
                arrays = self._programs.replay(self.key, np.full(ids.size, self.begin, np.int64), counts, arrays)
        return arrays[which]

    def assign(self, which: int, start: int, values: Array) -> None:
        """Sets rows, from row `start` of the whole table on."""
        ids = np.arange(start, start + len(values))
        places = self.touch(ids)
        self._catch_up(places)
        if self.program.movement:
            self._settle_slots(places)
        self.arrays[which][places] = values

    def _settle_slots(self, places: Array) -> None:
        """Writes down slots of settled rows as they are now: what is assigned holds from now on."""
        now = self._programs.rates[self.key].stop
        for i in range(1, len(self.arrays)):
            rows = self.arrays[i].take(places, axis=0)
            self._decay(i, rows, places, now)
            self.arrays[i][places] = rows
        self.pushed[places] = self.at[places] = now

    def settle(self) -> None:
        """Brings all rows that have been touched up to date."""
        places = np.arange(self.count)
        self._catch_up(places)
        if self.program.movement:
            self._settle_slots(places)

    def begin_again(self) -> None:
        """Takes the clock's count of steps, which has been set anew, for all rows."""
        self.begin = self._programs.rates[self.key].stop
        if self.program.movement:
            self.pushed[: self.count] = self.at[: self.count] = self.begin

    def state(self) -> dict[str, Array]:
        """Returns what has been touched, for a cut: ids, value and slots, and the steps that they are of."""
        arrays = {f"array{i}": a[: self.count] for i, a in enumerate(self.arrays)}
        steps = {"pushed": self.pushed[: self.count], "at": self.at[: self.count]} if self.program.movement else {}
        return {"ids": self.ids[: self.count], "begin": np.int64(self.begin), **arrays, **steps}

    def load_state(self, state: dict[str, Array]) -> None:
        """Takes rows of a `state`, of which those of other servers are left out."""
        own, places = self._add(np.asarray(state["ids"]))
        for i, array in enumerate(self.arrays):
            array[places] = state[f"array{i}"].view(array.dtype)[own]
        if self.program.movement:
            self.pushed[places] = state["pushed"][own]
            self.at[places] = state["at"][own]
        self.begin = int(state["begin"])

    def load_rows(self, ids: Array, arrays: Sequence[Array]) -> None:
        """Takes rows as `read_rows` has returned them, from now on; those of other servers are left out."""
        own, places = self._add(ids)
        for array, values in zip(self.arrays, arrays, strict=True):
            array[places] = values[own]
        if self.program.movement:
            self.pushed[places] = self.at[places] = self._programs.rates[self.key].stop

    def _add(self, ids: Array) -> tuple[Array, Array]:
        """Makes room for rows; returns which of them are this server's and were not there, and their places."""
        own = np.zeros(ids.size, bool)
        for shard in self.shards:
            own |= (ids >= shard.start) & (ids < shard.stop)
        # A request that is sent again, on a new connection, finds its rows there.
        own[own] = self._index.take(self.local(ids[own])) == 0
        ids = ids[own]
        places = np.arange(self.count, self.count + ids.size)
        self.ids[places] = ids
        self._index[self.local(ids)] = places + 1
        self.count += ids.size
        return own, places

    def kept_ids(self) -> Iterator[Array]:
        """Yields the ids of rows that are not what they begin with, in ascending order, piece by piece."""
        size = piece_rows(ArrayLayout(self.arrays[0].dtype, self.arrays[0].shape))
        for shard in self.shards:
            for start in range(shard.start, shard.stop, size):
                ids = np.arange(start, min(start + size, shard.stop))
                yield ids if self._has_moved else ids[self._index.take(self.local(ids)) > 0]

    @property
    def kept_count(self) -> int:
        """The number of rows in `kept_ids`."""
        return self.length if self._has_moved else self.count

    @property
    def _has_moved(self) -> bool:
        """Returns whether rows that nobody has touched are not what they begin with any more."""
        movement = self.program.movement
        return movement is not None and not movement.rests_when_new and self._programs.rates[self.key].stop > self.begin

    def read_rows(self, which: int, ids: Array) -> Array:
        """Returns rows of value (0) or a slot (1, ...) as they are now; makes nothing that has not been touched."""
        return self._read(which, ids)

    @property
    def resident(self) -> int:
        """The bytes of what has been touched, without the index."""
        return self.count * (8 + sum(a.itemsize * self.variable.row_size for a in self.arrays) + 8 * bool(self.at.size))


def _put_rows(array: Array, places: Array, rows: Array) -> None:
    """Sets rows of an array; each as one element, which takes NumPy half the time of as many as it has."""
    one = np.dtype((np.void, array.itemsize * math.prod(array.shape[1:])))
    np.put(array.reshape(-1).view(one), places, np.ascontiguousarray(rows).reshape(-1).view(one))
