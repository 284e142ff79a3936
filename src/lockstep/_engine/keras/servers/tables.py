"""Tables: variables of `Embedding` layers that are too large for one task, which no task need ever hold whole.

Under the scope of a parameter server strategy a large `Embedding` gets a `Table` in place of its weights, and
optimizers get one for each slot of it. A table has the shape and the dtype of the variable that it stands for; its
value is made only if somebody reads it: by the initializer before training, from the servers afterwards.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import initializers, layers
from keras.src.optimizers.base_optimizer import BaseOptimizer

from lockstep._engine.keras.servers.deferred import Deferred, defer, deferring_class, held_value
from lockstep.errors import UnsupportedError

# Below this size a table travels whole in each step: a megabyte takes less than a millisecond (0.5 s/GB at both ends).
TABLE_BYTES = 1 << 20
# Up to this size what uses a whole table may have it whole; beyond, every task would hold it, and send it in each step.
WHOLE_BYTES = 1 << 30

Partitioner = Callable[..., Any]
"""As `tf.distribute.experimental.partitioners` are: (shape, dtype) -> the number of parts along each axis."""


@dataclass(frozen=True)
class TablePolicy:
    """Which weights of `Embedding` layers become tables.

    Attributes:
        partitioner: The strategy's; what it cuts into several parts is a table, whatever its size.
        min_bytes: From this size on weights are a table without a partitioner.
    """

    partitioner: Partitioner | None = None
    min_bytes: int = TABLE_BYTES

    def partitions(self, shape: tuple[int, ...], dtype: str) -> int | None:
        """Returns into how many parts the partitioner cuts a variable along its first axis; `None` without one."""
        if self.partitioner is None or not shape:
            return None
        return int(self.partitioner(shape, np.dtype(dtype))[0])

    def is_table(self, shape: tuple[int, ...], dtype: str) -> bool:
        """Returns whether the weights of an `Embedding` are a table."""
        return (self.partitions(shape, dtype) or 1) > 1 or nbytes(shape, dtype) >= self.min_bytes


_VARIABLE: Any = keras.Variable


class Table(deferring_class(_VARIABLE)):
    """A variable whose value is made when it is read: by its initializer, until something is assigned.

    Attributes:
        initializer: What makes its first value.
    """

    def _initialize_with_initializer(self, initializer: Any) -> None:
        self.initializer = initializer
        self._read_rows: Callable[[np.ndarray], Any] | None = None
        self._served: Deferred | None = None
        self._first = defer(self, lambda: initializer(self.shape, dtype=self.dtype))
        if isinstance(getattr(initializer, "seed", None), keras.random.SeedGenerator):
            # A generator goes on with each call, and what Keras draws from it next must not depend on who reads when.
            demand_small(self.path, self.shape, self.dtype, "an initializer that draws from a SeedGenerator")
            self._value = self._first.read()

    @property
    def is_initial(self) -> bool:
        """Returns whether the value is that of the initializer."""
        return held_value(self) is self._first

    @property
    def is_served(self) -> bool:
        """Returns whether servers hold the value."""
        return self._served is not None and held_value(self) is self._served

    def serve(self, read: Callable[[], Any], read_rows: Callable[[np.ndarray], Any]) -> Deferred:
        """Notes that servers hold the value, until something is assigned; returns its mark.

        Args:
            read: Returns all of it.
            read_rows: Returns rows by their ids.
        """
        self._read_rows, self._served = read_rows, defer(self, read)
        return self._served

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Returns rows by their ids, without the others if servers hold them."""
        if self._read_rows is not None and self.is_served:
            return np.asarray(self._read_rows(ids))
        return np.asarray(self._value)[ids]

    @property
    def value(self) -> Any:
        """The value; while a step is traced, whoever watches is told of the read."""
        if _watches.function is not None:
            _watches.function(self)
        return super().value

    def __repr__(self) -> str:
        # Keras' own shows the value, which may be larger than the memory.
        return f"<Table path={self.path}, shape={self.shape}, dtype={self.dtype}>"


def nbytes(shape: tuple[int, ...], dtype: str) -> int:
    """Returns how many bytes a variable takes."""
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize


# ---- Reads while a step is traced ----


class _Watches(threading.local):
    """Holds the observers of reads of tables on this thread."""

    function: Callable[[Table], None] | None = None


_watches = _Watches()


@contextlib.contextmanager
def watching(watch: Callable[[Table], None] | None) -> Generator[None]:
    """Calls `watch` for each table whose value is read on this thread; `None` watches no more."""
    before, _watches.function = _watches.function, watch
    try:
        yield
    finally:
        _watches.function = before


# ---- The scope in which layers get tables ----

_scope = threading.local()
_installed = False


@contextlib.contextmanager
def tables_by(policy: TablePolicy | None) -> Generator[None]:
    """Has `Embedding` layers that are built on this thread get tables."""
    _install()
    before = getattr(_scope, "policy", None)
    _scope.policy = policy
    try:
        yield
    finally:
        _scope.policy = before


def _install() -> None:
    """Wraps what builds `Embedding` layers, and what makes slots of optimizers, once per process."""
    global _installed
    if _installed:
        return
    _installed = True
    layers.Embedding.build = _build(layers.Embedding.build)
    BaseOptimizer.add_variable_from_reference = _add_slot(BaseOptimizer.add_variable_from_reference)


def _build(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def build(self: Any, input_shape: Any = None) -> Any:
        policy: TablePolicy | None = getattr(_scope, "policy", None)
        shape = (int(self.input_dim), int(self.output_dim))
        dtype = keras.backend.standardize_dtype(self.variable_dtype)
        if policy is None or self.built or not policy.is_table(shape, dtype):
            return theirs(self, input_shape)
        if why := _whole_reason(self):
            demand_small(self.path, shape, dtype, why)
            return theirs(self, input_shape)
        variable = Table(
            initializer=self.embeddings_initializer, shape=shape, dtype=dtype, trainable=True, name="embeddings"
        )
        # As add_weight does, which knows no other class of variables.
        self._track_variable(variable)
        self._embeddings = variable
        self.built = True
        return None

    return build


def _whole_reason(layer: Any) -> str | None:
    """Returns what about a layer uses its table as a whole; `None` if nothing does."""
    reasons = {
        "embeddings_regularizer": layer.embeddings_regularizer is not None,
        "embeddings_constraint": layer.embeddings_constraint is not None,
        "LoRA": bool(layer.lora_rank),
        "a quantized dtype": bool(layer.quantization_mode),
        "trainable=False": not layer.trainable,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def demand_small(path: str, shape: tuple[int, ...], dtype: str, why: str) -> None:
    """Raises `UnsupportedError` for a table that something uses whole, unless it is small enough for that."""
    if nbytes(shape, dtype) > WHOLE_BYTES:
        raise UnsupportedError(
            f"A table of more than {WHOLE_BYTES >> 20} MiB is looked up by rows, because no task can hold it whole. "
            f"Received: {path!r} of {dtype}{list(shape)} ({nbytes(shape, dtype) >> 20} MiB) with {why}, which "
            "uses all of its rows in each step. Leave that out, or look rows up with the layer's call alone."
        )


def _add_slot(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def add_variable_from_reference(
        self: Any, reference_variable: Any, name: str | None = None, initializer: Any = "zeros"
    ) -> Any:
        if not isinstance(reference_variable, Table):
            return theirs(self, reference_variable, name=name, initializer=initializer)
        path = reference_variable.path.replace("/", "_")
        with keras.name_scope(self.name, caller=self):
            variable = Table(
                initializer=initializers.get(initializer),
                shape=reference_variable.shape,
                dtype=reference_variable.dtype,
                trainable=False,
                name=f"{path}_{name or 'var'}",
            )
        self._track_variable(variable)
        return variable

    return add_variable_from_reference
