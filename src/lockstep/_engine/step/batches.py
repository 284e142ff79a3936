"""Global batches: the forms they have on the host and on the devices, their chunks, and the outputs of a dispatch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.step.replicas import Replicas
from lockstep._types import Array, Batch, PyTree
from lockstep.errors import InputError

# Boolean, signed and unsigned integer, float, complex. bfloat16 and its kind are of kind "V".
_NUMBERS = "biufc"
# A chunk holds so many batches and bytes at most, and so many bytes of outputs of its steps. Control messages between
# tasks travel with chunks, so that several tasks put fewer batches into one.
_MOST_STEPS = 256
_MOST_STEPS_TOGETHER = 16
_MOST_BYTES = 8 << 20
_MOST_OUTPUT_BYTES = 4 << 20
# A dispatch that takes less may be longer, one that takes more must be shorter: signals and callbacks wait for it.
# Where XLA has all cores, what Python does around a dispatch is taken from the steps.
_SHORT_SECONDS, _LONG_SECONDS = 0.04, 0.08


@dataclass(frozen=True)
class EvenShard:
    """A process's rows of a global batch whose total row count every process knows.

    Attributes:
        data: The rows.
        count: How many rows the whole batch has.
    """

    data: Batch
    count: int

    @property
    def nbytes(self) -> int:
        """How many bytes the rows take."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self.data))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OfReplicas:
    """Elements of which each replica of this process gets one, of any shapes; not rows of one batch.

    Attributes:
        elements: One for each replica.
    """

    elements: tuple[Any, ...]


@dataclass(frozen=True)
class RaggedShard:
    """A process's rows of a global batch; row counts are exchanged before the step.

    Attributes:
        data: The rows; none at all once this process's data has ended.
        counts: How many rows each process adds, once they have agreed on it.
    """

    data: Batch
    counts: Sequence[int] = ()

    @property
    def nbytes(self) -> int:
        """How many bytes the rows take."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self.data))

    @property
    def rows(self) -> int:
        """How many rows this process adds."""
        # An element without dimensions is one.
        return next((leaf.shape[0] if np.ndim(leaf) else 1 for leaf in jax.tree.leaves(self.data)), 0)


@dataclass(frozen=True)
class BatchFn:
    """Builds a batch from resident arrays; pure, traceable, hashable by `key`.

    Attributes:
        key: Equal for functions that do the same, so that what was compiled with one serves for the other.
        compute: Function of the arrays and int32 (k,) rows that returns the batch.
    """

    key: Hashable
    compute: Callable[[tuple[Any, ...], Any], Batch] = field(compare=False)

    def __call__(self, arrays: tuple[Array, ...], rows: Array) -> Batch:
        """Returns the batch."""
        return self.compute(arrays, rows)


@dataclass(frozen=True)
class GatherIndices:
    """Row indices into arrays that already live on every device (the device cache).

    Attributes:
        batch_fn: Makes the batch of the arrays and the rows, in the step program.
        arrays: The arrays.
        rows: int32 (k,), the indices.
        shapes: Shapes and dtypes of the batch.
    """

    batch_fn: BatchFn
    arrays: tuple[Array, ...]
    rows: Any
    shapes: PyTree

    @property
    def nbytes(self) -> int:
        """How many bytes travel to the devices: the indices alone."""
        return self.rows.nbytes


class Split(Enum):
    """How a global batch lies on the replicas."""

    EVEN = "each replica holds its shard"
    UNEVEN = "each replica holds all; XLA divides the work, with padding that it masks"
    WHOLE = "each replica holds all and computes all"


@dataclass(frozen=True)
class DeviceBatch:
    """A global batch on the devices, or a chunk of several that a step program runs one after the other.

    Attributes:
        data: The arrays. Those of a chunk have one more axis, the first: one slot for each batch.
        split: How they lie there.
        counts: Of a batch that the processes put together of different numbers of rows, these numbers; the arrays are
            padded until the step.
        batch_fn: Of data that are (arrays, rows): makes the batch of them, in the step program.
        capacity: How many slots a chunk has; 0 for a single batch.
        first: The slot of the first batch to run.
        steps: How many batches to run.
    """

    data: PyTree
    split: Split
    counts: tuple[int, ...] = ()
    batch_fn: BatchFn | None = None
    capacity: int = 0
    first: int = 0
    steps: int = 1

    def slice_steps(self, first: int, steps: int) -> DeviceBatch:
        """Returns the batches from `first` on, `steps` of them."""
        return dataclasses.replace(self, first=self.first + first, steps=steps)


@dataclass(frozen=True)
class Outputs:
    """The outputs of the steps of one dispatch, still on the devices.

    Attributes:
        value: Those of the last step; or those of all steps, stacked, if `slots` is not `None`.
        slots: Which slots of the stack belong to the steps of the dispatch.
        local: Makes arrays of this process of them.
    """

    value: PyTree
    slots: range | None
    local: Callable[[PyTree], PyTree]

    @property
    def all(self) -> PyTree:
        """Arrays of the last step, or of all steps with zeros in slots that are not theirs."""
        return self.local(self.value)

    @property
    def last(self) -> PyTree:
        """The outputs of the last step: a pytree of arrays of this process."""
        stack, slots = self.all, self.slots
        return stack if slots is None else jax.tree.map(lambda a: a[slots[-1]], stack)

    def each(self) -> list[PyTree]:
        """The outputs of each step; of the last one alone, unless all are kept."""
        if self.slots is None:
            return [self.all]
        # One copy to the host for all steps, then slices of it.
        stack = jax.tree.map(np.asarray, self.all)
        return [jax.tree.map(lambda a: a[slot], stack) for slot in self.slots]  # noqa: B023


class StepsPerExecutionTuner:
    """Tunes how many steps the next dispatch may run: more and more, until one takes long enough.

    Attributes:
        max_steps: How many steps the next dispatch may run.
        seconds: How long the last dispatch took.
    """

    def __init__(self, is_alone: bool = True) -> None:
        # Tasks that train together do not follow their clocks: all must dispatch alike, because XLA may put what they
        # exchange before or after the loop.
        self._follows_clock = is_alone
        self.max_steps = 1 if is_alone else _MOST_STEPS_TOGETHER
        self.seconds = 0.0

    def record(self, steps: int, seconds: float, is_loop: bool = True) -> None:
        """Notes how long a dispatch of so many steps took, and whether its program could have run more of them."""
        self.seconds = seconds
        if not self._follows_clock or not is_loop:
            return
        if seconds > _LONG_SECONDS:
            self.max_steps = max(1, steps // 2)
        # A dispatch that was cut short, such as before a callback, does not say that more steps would still be short.
        elif seconds < _SHORT_SECONDS and steps >= self.max_steps:
            self.max_steps = min(2 * self.max_steps, _MOST_STEPS)


def chunk_key(batch: Any) -> Hashable:
    """Returns what batches that go into one chunk have in common; `None` for one that goes alone."""
    if isinstance(batch, RaggedShard):
        return None
    if isinstance(batch, GatherIndices):
        return batch.batch_fn, tuple(map(id, batch.arrays)), len(batch.rows)
    count, data = (batch.count, batch.data) if isinstance(batch, EvenShard) else (None, batch)
    leaves, structure = jax.tree.flatten(data)
    return count, structure, tuple((np.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves)


def chunk_capacity(nbytes: int, output_bytes: int, is_alone: bool) -> int:
    """Returns how many batches a chunk holds: a power of two."""
    most = min(
        _MOST_STEPS if is_alone else _MOST_STEPS_TOGETHER,
        _MOST_BYTES // max(1, nbytes),
        _MOST_OUTPUT_BYTES // max(1, output_bytes),
    )
    return 1 << int(math.log2(max(1, most)))


def group_batches(batches: Iterable[Any], capacity: Callable[[Any], int]) -> Iterator[list[Any]]:
    """Yields consecutive batches with the same `chunk_key`, as many together as a chunk holds; or one alone."""
    group: list[Any] = []
    group_key: Any = None
    limit = 0
    for batch in batches:
        key = chunk_key(batch)
        if group and key != group_key:
            yield group
            group = []
        if not group:
            group_key, limit = key, capacity(batch)
        group.append(batch)
        if len(group) >= limit:
            yield group
            group = []
    if group:
        yield group


def as_even_shard(replicas: Replicas, batch: Any) -> Any:
    """Returns a ragged shard as an even one, if all processes add as many rows and their replicas can divide them."""
    if not isinstance(batch, RaggedShard) or not batch.counts or len(set(batch.counts)) > 1:
        return batch
    per_process = replicas.count // len(batch.counts)
    return batch if batch.counts[0] % per_process else EvenShard(batch.data, sum(batch.counts))


def global_shapes(replicas: Replicas, batch: Any) -> PyTree:
    """Returns shapes and dtypes of a global batch; of a ragged one, as if all processes added as many rows."""
    if isinstance(batch, GatherIndices):
        return batch.shapes
    count: int | None = None
    if isinstance(batch, EvenShard):
        count, batch = batch.count, batch.data
    elif isinstance(batch, RaggedShard):
        count, batch = batch.rows * len(replicas.runtime.tasks), batch.data

    def shape_of(leaf: Array) -> jax.ShapeDtypeStruct:
        shape = leaf.shape if count is None or not leaf.shape else (count, *leaf.shape[1:])
        return jax.ShapeDtypeStruct(shape, leaf.dtype)

    return jax.tree.map(shape_of, to_arrays(batch))


def host_rows(replicas: Replicas, count: int) -> slice | None:
    """Returns this process's rows of a batch that the replicas can divide, or `None` if it needs all of them."""
    if count % replicas.count or not count or len(replicas.local) == replicas.count:
        return None
    each = count // replicas.count
    # Replicas of one process are neighbours, so that its rows are one slice.
    mine = [i for i, _ in replicas.local]
    return slice(mine[0] * each, (mine[-1] + 1) * each)


def concat_ragged(data: Batch, counts: tuple[int, ...]) -> Batch:
    """Cuts each process's rows out of a padded batch, and puts them after each other; a part of the step."""

    def concat(array: Array) -> Array:
        each = array.shape[0] // len(counts)
        return jnp.concatenate([array[i * each : i * each + n] for i, n in enumerate(counts)])

    return jax.tree.map(lambda a: concat(a) if a.ndim else a, data)


def to_arrays(batch: Batch) -> Batch:
    """Returns a batch with every leaf an array of numbers; arrays of jax stay where they are.

    Raises:
        InputError: If a leaf is anything else, such as text, or an integer does not fit into 32 bits.
    """
    return jax.tree_util.tree_map_with_path(_to_array, batch)


def _to_array(path: Any, leaf: Any) -> Array:
    # np.asarray would fetch it from its device.
    if isinstance(leaf, jax.Array):
        return leaf
    array = np.asarray(leaf)
    if array.dtype.kind not in _NUMBERS and not jnp.issubdtype(array.dtype, np.number):
        raise InputError(
            f"Batches must hold numbers. Received: {array.dtype} at {jax.tree_util.keystr(path)}. Turn text into "
            "numbers before it reaches the model, for example with keras.layers.StringLookup or TextVectorization in "
            "the input pipeline."
        )
    # 64-bit numbers become 32-bit ones here, unless JAX is told to keep them; said aloud on each batch it is noise.
    narrow = jax.dtypes.canonicalize_dtype(array.dtype)
    if narrow != array.dtype and array.dtype.kind in "iu" and array.size:
        limits = np.iinfo(narrow)
        # Floats lose digits, which is what training with float32 means; an id would become another id.
        if not (limits.min <= array.min() and array.max() <= limits.max):
            raise InputError(
                f"JAX computes with 32-bit integers, and values must fit into them. Received: {array.min()} to "
                f"{array.max()} at {jax.tree_util.keystr(path)}. Hash such numbers in the input pipeline, or set "
                'jax.config.update("jax_enable_x64", True) right after the imports.'
            )
    return array.astype(narrow, copy=False)


def common_rows(batch: Batch) -> int:
    """Returns the number of examples, or 0 for a batch without a first axis common to all its arrays."""
    lengths = {a.shape[0] for a in jax.tree.leaves(batch) if np.ndim(a) > 0}
    return lengths.pop() if len(lengths) == 1 else 0
